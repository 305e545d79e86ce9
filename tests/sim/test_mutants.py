"""The worlds bite: each deliberate bug makes one of a few fixed seeds fail, and without it none does."""

import subprocess
import sys

import pytest

from tests.house.source import ROOT
from tests.sim.mutants import MUTANTS
from tests.sim.seeds import CI


def test_there_are_many_mutants_of_many_modules() -> None:
    assert len(MUTANTS) >= 12
    assert len({mutant.module for mutant in MUTANTS.values()}) >= 6


@pytest.mark.parametrize("name", MUTANTS)
def test_what_a_mutant_changes_is_there_exactly_once(name: str) -> None:
    """`source` raises otherwise, so that a mutant cannot silently become none."""
    mutant = MUTANTS[name]
    assert mutant.source() != mutant.path.read_text()


@pytest.mark.parametrize("name", MUTANTS)
def test_without_the_mutant_its_seeds_pass(name: str) -> None:
    """They are seeds of tests/sim/test_world.py, which runs all of them."""
    assert set(MUTANTS[name].seeds) <= set(CI)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_mutant_is_caught(name: str) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "tests.sim.mutants", name, *map(str, MUTANTS[name].seeds)],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1, f"nobody noticed that {name}\n{result.stderr}"
    assert result.stdout.startswith("seed "), result.stderr
