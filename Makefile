# Two commands do everything: `make demo` and `make test`. `make help` lists the rest.

PYTHON ?= python3
BIN := .venv/bin

MAKEFLAGS += --no-print-directory
.DEFAULT_GOAL := help

# A virtual environment or a search path of the caller must not leak into ours, and compiled files
# are kept: without them every start of `servo` compiles its imports again.
unexport VIRTUAL_ENV PYTHONPATH PYTHONHOME PYTHONDONTWRITEBYTECODE

.PHONY: help setup demo test sim crash check bench lock clean

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-7s %s\n", $$1, $$2 }' Makefile

setup: ## create .venv with exactly the locked dependencies (the others do it by themselves)
	@$(PYTHON) tools/setup_venv.py

demo: setup ## plan and run examples/shop for three days, and show what happened
	@rm -rf build/demo && mkdir -p build && cp -r examples/shop build/demo
	@cd build/demo; for command in \
	    "servo plan +daily_revenue -p date=2024-01-01..2024-01-03" \
	    "servo run +daily_revenue -p date=2024-01-01..2024-01-03" \
	    "servo status" \
	    "servo ledger verify"; \
	do \
	    printf '\n$$ %s\n' "$$command"; \
	    "$(CURDIR)/$(BIN)/servo" $${command#servo } || exit 1; \
	done
	@echo; echo "That was a copy of examples/shop, in build/demo."

test: setup ## run all tests
	@$(BIN)/python -m pytest -q -n auto

ROUNDS ?= 500
crash: setup ## kill real processes at random and compare: make crash ROUNDS=500
	@$(BIN)/python -m tests.crash.hunt $(ROUNDS)

sim: setup ## live through SEEDS simulated worlds from seed FIRST on; those that fail are kept as tests
	@$(BIN)/python tools/hunt.py $(or $(SEEDS),1000) $(or $(FIRST),0)

check: setup ## format, lint, strict types, layers, docs links; changes nothing
	@echo "format" && $(BIN)/ruff format --quiet --check . || { echo "run: $(BIN)/ruff format ."; exit 1; }
	@echo "lint" && $(BIN)/ruff check --quiet .
	@echo "types" && $(BIN)/mypy --no-error-summary
	@echo "house: layers, purity, facade, light imports, repository" && $(BIN)/python -m pytest -q --no-header tests/house
	@echo "docs links" && $(BIN)/python tools/check_docs_links.py

bench: setup ## run every benchmark; each ends with one JSON line per figure
	@status=0; for script in $(filter-out bench/report.py bench/engines.py,$(sort $(wildcard bench/*.py))); do \
	    echo "== $$script"; $(BIN)/python $$script || status=1; \
	done; exit $$status

lock: setup ## write requirements.lock again, with the newest allowed versions
	@$(BIN)/uv pip compile --quiet --upgrade --universal --generate-hashes --python-version 3.11 \
	    --custom-compile-command "make lock" --group dev pyproject.toml --output-file requirements.lock
	@echo "requirements.lock is written; the next make installs it"

clean: ## remove .venv, caches and build results
	@rm -rf .venv .hypothesis .mypy_cache .pytest_cache .ruff_cache build dist
	@find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
