"""Whole worlds: engines, workers and callers on storage that fails, from seeds.

`make sim SEEDS=10000` looks at many more of them; what it finds is kept in seeds.txt and replayed here.
"""

import os
import subprocess
import sys
from collections import Counter
from itertools import product
from pathlib import Path

import msgspec
import pytest

from servo.testing import ROUGH, world
from servo.testing.auditor import Violation
from servo.testing.world import COUNTED, Scenario, simulate
from tests.sim.seeds import CI, kept

CHUNK = 6


@pytest.fixture
def lived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all test processes of this run share: what became of each seed."""
    folder = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        folder = folder.parent
    folder = folder / "worlds"
    folder.mkdir(exist_ok=True)
    return folder


def counts_of(seed: int, lived: Path) -> dict[str, int]:
    """What happened in the world of a seed. It is run once, whichever test asks first."""
    path = lived / f"{seed}.json"
    if not path.exists():
        counts = simulate(seed).counts
        written = path.with_suffix(f".{os.getpid()}")
        written.write_bytes(msgspec.json.encode(counts))
        written.rename(path)
    return msgspec.json.decode(path.read_bytes(), type=dict[str, int])


@pytest.mark.parametrize("first", CI[::CHUNK])
def test_nothing_that_must_never_happen_does(first: int, lived: Path) -> None:
    at = CI.index(first)
    for seed in CI[at : at + CHUNK]:
        counts_of(seed, lived)


@pytest.mark.parametrize("seed", kept())
def test_a_seed_that_failed_once_passes(seed: int) -> None:
    simulate(seed)


@pytest.mark.parametrize(
    ("place", "workers", "life", "engines"),
    [
        (place, workers, life, engines)
        for place, (workers, life), engines in product(
            ("folder", "cloud"),
            (("inline", "resident"), ("pool", "resident"), ("pool", "steps")),
            (1, 2, 3),
        )
    ],
)
def test_every_kind_of_world_comes_to_its_end(
    place: str, workers: str, life: str, engines: int
) -> None:
    scenario = Scenario(
        place=place,
        workers=workers,
        life=life,
        engines=engines,
        runs=2,
        trouble=ROUGH,
        seconds=12.0,
        merge_files=3,
        log_bytes=4096,
    )
    outcomes = simulate(1, scenario)
    assert outcomes.scenario == scenario
    assert outcomes.acknowledged
    assert outcomes.counts["step"] or life == "resident"


@pytest.mark.parametrize("seed", [3, 6])
def test_the_same_seed_gives_the_same_trace(seed: int) -> None:
    once, again = simulate(seed), simulate(seed)
    assert once.trace.first_difference(again.trace) is None
    assert once.digest == again.digest
    code = f"from servo.testing import simulate\nprint(simulate({seed}).digest)"
    other = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONHASHSEED": "4321"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert other.stdout.strip() == once.digest
    assert simulate(seed + 1).digest != once.digest


def test_a_failure_names_its_seed_and_its_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object) -> None:
        raise Violation("it went wrong")

    monkeypatch.setattr(world._World, "_check_requests", fail)
    with pytest.raises(Violation, match=r"seed 12: it went wrong\nScenario\(place="):
        simulate(12)


def test_what_crashes_the_world_itself_names_the_seed_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: object) -> None:
        raise KeyError("lost")

    monkeypatch.setattr(world._World, "_check_requests", fail)
    with pytest.raises(Violation, match="seed 12: 'lost'"):
        simulate(12)


AT_LEAST = {
    "killed": 130,
    "power cut": 12,
    "zombie": 8,
    "takeover": 300,
    "fenced": 14,
    "race": 90,
    "intents thrown away": 50,
    "answer lost": 30,
    "answer settled": 25,
    "reload": 50,
    "merge": 180,
    "contended": 4,
    "live check": 2000,
    "step": 200,
    "own code": 70,
}
"""About a half of what was counted when this was written: a change of the code moves every seed."""


def test_the_worlds_reach_what_they_are_made_for(lived: Path) -> None:
    """Last, because by now most of them have been lived through."""
    total: Counter[str] = Counter()
    for seed in CI:
        total.update(counts_of(seed, lived))
    assert AT_LEAST.keys() == COUNTED.keys()
    assert {what: total[what] for what, least in AT_LEAST.items() if total[what] < least} == {}
