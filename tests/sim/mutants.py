"""Deliberate bugs, each a change of a few lines of the real source, and a way to run worlds with one.

    python -m tests.sim.mutants NAME SEED …    1 if a world of one of the seeds fails, which it says

A mutant is loaded in a Python process of its own: the one module that it is about is compiled from
the changed text, before anything has imported it.
"""

import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, ModuleType
from typing import NamedTuple

from tests.sim.seeds import CI

SOURCES = Path(__file__).parents[2] / "src"


class Mutant(NamedTuple):
    module: str
    changes: tuple[tuple[str, str], ...]
    """What is replaced, which is there exactly once, and what by."""
    first: int
    """A seed that catches it quickly. The budget is this one and those that follow it."""

    @property
    def path(self) -> Path:
        return SOURCES / f"{self.module.replace('.', '/')}.py"

    @property
    def seeds(self) -> list[int]:
        at = CI.index(self.first)
        return [*CI[at:], *CI[:at]][:BUDGET]

    def source(self) -> str:
        text = self.path.read_text()
        for old, new in self.changes:
            if text.count(old) != 1:
                raise LookupError(f"{self.module} has {text.count(old)} times, not once:\n{old}")
            text = text.replace(old, new)
        return text


BUDGET = 30

_ENGINE = "servo.runtime.engine"
_JOURNAL = "servo.ledger.journal"
_INTENTS = "        intents = [self.event(fact, ENGINE) for fact in self._decide(now)]\n"
_APPEND = '        header = await self._append(lines, "leader", self._epoch)\n'
_RACE = "                    self.state.undo()\n"

MUTANTS: dict[str, Mutant] = {
    "no fence: a leader goes on though a higher epoch was claimed": Mutant(
        _ENGINE,
        (("if self.leading and self.state.epoch > self._epoch:", "if False:"),),
        6,
    ),
    "intents are kept after a lost race": Mutant(
        _ENGINE,
        (
            (
                _INTENTS,
                (
                    "        intents = self._last = self.__dict__.pop('_kept', None) or [\n"
                    "            self.event(fact, ENGINE) for fact in self._decide(now)]\n"
                ),
            ),
            (_RACE, _RACE + "                    self._kept = self._last\n"),
        ),
        0,
    ),
    "the overlay is kept after a lost race": Mutant(
        _ENGINE, ((_RACE, _RACE.replace("undo", "keep")),), 0
    ),
    "callers are answered before their facts are durable": Mutant(
        _ENGINE, ((_APPEND, "        self._answer(batches, position)\n" + _APPEND),), 0
    ),
    "work is handed out from the overlay": Mutant(
        _ENGINE, ((_APPEND, "        self._act([*events, *intents])\n" + _APPEND),), 0
    ),
    "a counter instead of edges: an end that is told again counts again": Mutant(
        "servo.fold.runs",
        (
            (
                "if before != after and key in shape.downstreams:",
                "if after is not None and key in shape.downstreams:",
            ),
            ("if before is not None or after is None:", "if after is None:"),
        ),
        6,
    ),
    "the attempt is ignored: results of old attempts count": Mutant(
        "servo.fold.state",
        (
            (
                "        joined = attempt.ended(Result.of(fact, mark))\n",
                (
                    "        attempt = task.current or attempt\n"
                    "        joined = attempt.ended(Result.of(fact, mark))\n"
                ),
            ),
        ),
        1,
    ),
    "results are joined by their clocks, not by their places": Mutant(
        "servo.fold.records",
        (
            (
                "results = tuple(sorted([*others, result], key=lambda r: r.mark))",
                "results = tuple(sorted([*others, result], key=lambda r: r.mark[2]))",
            ),
        ),
        23,
    ),
    "a run key belongs to the lowest ULID, not to the lowest place": Mutant(
        "servo.fold.tables.run_keys",
        (
            (
                "return Claims(tuple(sorted([*others, claim], key=lambda c: c.mark)))",
                "return Claims(tuple(sorted([*others, claim], key=lambda c: c.run_id)))",
            ),
        ),
        1,
    ),
    "nobody reads back after a lost answer": Mutant(
        _JOURNAL,
        (
            ("if await self._is_own(header):", "if False:"),
            ("if unsure and await self._settled(header):", "if False:"),
        ),
        1,
    ),
    "after a lost answer the segment is offered with another nonce": Mutant(
        _JOURNAL,
        (
            (
                "                unsure = True\n",
                (
                    "                unsure = True\n"
                    "                header, data = segments.encode(\n"
                    "                    lines, position=position, prev_hash=prev_hash,\n"
                    "                    writer_id=self._writer_id, nonce=self._new_id(), epoch=epoch,\n"
                    "                    kind=kind, written_at=written_at)\n"
                ),
            ),
        ),
        1,
    ),
    "a publisher that lost a race takes the next number and keeps its old parent": Mutant(
        "servo.ledger.publisher",
        (
            (
                "            parent = await self._adopt(parent, parse(found, manifest.revision))\n",
                "            parent = msgspec.structs.replace(parent, revision=manifest.revision)\n",
            ),
        ),
        39,
    ),
    "every third revision goes back by a position": Mutant(
        "servo.ledger.publisher",
        (
            (
                "                    position=position,\n                    ledger_hash",
                (
                    "                    position=position - (parent.revision % 3 == 2),\n"
                    "                    ledger_hash"
                ),
            ),
        ),
        2,
    ),
    "rows of a publish that failed are forgotten": Mutant(
        _ENGINE,
        (
            (
                "        taken = list(self._unpublished)\n",
                "        taken, self._unpublished = list(self._unpublished), []\n",
            ),
            (
                "        self._unpublished = self._unpublished[len(taken) :]\n",
                "",
            ),
        ),
        0,
    ),
    "what was evicted is not loaded again": Mutant(
        "servo.fold.state", (("missing.add(fact.run_id)", "pass"),), 6
    ),
    "what is not published yet is evicted": Mutant(
        "servo.fold.state",
        (
            (
                (
                    "for run_id in [r for r in self.runs if r not in self.active"
                    " and r not in self._dirty_runs]:"
                ),
                "for run_id in [r for r in self.runs if r not in self.active]:",
            ),
        ),
        0,
    ),
    "a torn tail is not cut": Mutant(
        "servo.adapters.local_log",
        (
            (
                "            if torn:\n                last.file.truncate(last.end)\n",
                "            if False:\n                last.file.truncate(last.end)\n",
            ),
        ),
        3,
    ),
    "a leader claims at the head without folding what is before it": Mutant(
        _ENGINE,
        (
            (
                "            except Conflict:\n                await self.catch_up()\n",
                (
                    "            except Conflict:\n"
                    "                found = await self._journal.read(self.state.position + 1)\n"
                    "                newest = found[-1].header\n"
                    "                self.state.advance(newest.position, newest.hash)\n"
                    "                self.state.keep()\n"
                ),
            ),
            (
                "            )\n        await self.catch_up()\n",
                "            )\n",
            ),
        ),
        1,
    ),
    "a claim does not raise the epoch": Mutant(
        _ENGINE, (("epoch = self.state.epoch + 1", "epoch = max(1, self.state.epoch)"),), 1
    ),
    "a column is not loaded: when an attempt started": Mutant(
        "servo.fold.tables.attempts",
        (("        started=read_mark(values[18:21]),\n", "        started=None,\n"),),
        0,
    ),
    "a column is not loaded: that a run was told to stop": Mutant(
        "servo.fold.tables.runs",
        (("        if stopped\n        else None,\n", "        if False\n        else None,\n"),),
        16,
    ),
    "the lock is never let go": Mutant(
        _ENGINE, (("            self.store.lock.release()\n", "            pass\n"),), 3
    ),
}


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, mutant: Mutant) -> None:
        super().__init__(mutant.module, str(mutant.path))
        self._mutant = mutant

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self._mutant.source(), self.path, "exec")
        return code


class _Finder:
    def __init__(self, mutant: Mutant) -> None:
        self._mutant = mutant

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != self._mutant.module:
            return None
        return importlib.util.spec_from_loader(name, _Loader(self._mutant))


def load(name: str) -> None:
    """Make this Python process one that has the bug."""
    mutant = MUTANTS[name]
    assert mutant.module not in sys.modules, f"{mutant.module} was imported before its mutant"
    sys.meta_path.insert(0, _Finder(mutant))


def main(name: str, seeds: Sequence[str]) -> int:
    load(name)
    from servo.testing.world import simulate

    assert MUTANTS[name].module in sys.modules, "the worlds do not use what was changed"
    for seed in seeds:
        try:
            simulate(int(seed))
        except AssertionError as error:
            sys.stdout.write(f"{error}\n")
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], sys.argv[2:]))
