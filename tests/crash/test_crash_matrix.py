"""A process is killed, by SIGKILL, at every point where something may be half done, and at random
moments; the next ones go on. What they come to is what one comes to that nobody killed.

`make crash ROUNDS=1000` goes on for longer, with deaths at random.
"""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from servo.testing.crashes import NAMES, POINTS, Point, Watch, table
from tests.crash.aftermath import examine, lines
from tests.crash.child import Life
from tests.crash.lives import (
    ENDED,
    KILLED,
    Calm,
    Hold,
    Nursery,
    Process,
    a_folder,
    calm,
    random_lives,
    small_disk,
)
from tests.house.source import ROOT

ALONE = [point for point in POINTS if not point.beside]
BESIDE = [point for point in POINTS if point.beside]


@pytest.fixture(scope="module")
def nursery() -> Iterator[Nursery]:
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="module")
def usual(nursery: Nursery) -> Iterator[Calm]:
    with a_folder() as folder:
        yield calm(nursery, folder)


def test_a_life_that_nobody_kills_comes_by_every_point_but_those_after_a_death(usual: Calm) -> None:
    by_itself = {point.name for point in ALONE if point.after is None}
    assert by_itself <= set(usual.reached)
    assert len(by_itself) >= 12
    assert len(NAMES) == len(POINTS)


def test_a_point_that_nobody_named_is_refused() -> None:
    with pytest.raises(ValueError, match="no crash point"):
        Watch(at="log.append.sideways")


@pytest.mark.parametrize("point", ALONE, ids=lambda point: point.name)
def test_nothing_is_lost_or_doubled_by_a_death_at(
    point: Point, nursery: Nursery, usual: Calm
) -> None:
    often = usual.reached[point.after or point.name]
    for nth in sorted({1, (often + 1) // 2, often}):
        with a_folder() as folder:
            deaths = [(point.name, nth)]
            if point.after is not None:
                deaths = [(point.after, nth), (point.name, 1)]
            elif nth == 1:
                deaths.append((point.name, 1))  # and again, by who was to go on
            died = [
                nursery.live(Life(folder=str(folder), name=str(number), at=at, nth=n))
                for number, (at, n) in enumerate(deaths)
            ]
            # How often the later ones are reached depends on how fast the disk is.
            assert set(died) <= {KILLED, ENDED}
            if nth == 1:
                assert died[0] == KILLED
                assert point.name in lines(folder, "reached"), "the point is never reached"
            assert nursery.end(folder).outcome == usual.outcome


@pytest.mark.parametrize("seed", range(24))
def test_nothing_is_lost_or_doubled_by_deaths_at_random(
    seed: int, nursery: Nursery, usual: Calm
) -> None:
    with a_folder() as folder:
        for lives in random_lives(seed, folder, usual):
            assert set(nursery.live_together(lives)) <= {KILLED, ENDED}
        assert nursery.end(folder).outcome == usual.outcome


def test_what_was_acknowledged_and_is_gone_is_noticed(nursery: Nursery) -> None:
    with a_folder() as folder:
        found = nursery.end(folder)
        assert found.acknowledged > 20
        [*_, last] = sorted((folder / "store" / "ledger").glob("*.jsonl"))
        data = last.read_bytes()
        last.write_bytes(data[: data.rindex(b'{"format":')])
        with pytest.raises(AssertionError, match="cut short"):
            examine(folder)


# --- Two processes --------------------------------------------------------------------------------


@pytest.mark.parametrize("point", BESIDE, ids=lambda point: point.name)
def test_nothing_is_lost_or_doubled_by_a_follower_that_dies_at(
    point: Point, nursery: Nursery, usual: Calm
) -> None:
    with a_folder() as folder:
        with Hold(folder / "hold") as hold:
            leader = Process(
                Life(folder=str(folder), name="leader", runs=("held",), hold=hold.path)
            )
            with leader:
                leader.hear("began held/one:materialize")
                for nth in (1, 2, 4):
                    life = Life(folder=str(folder), name=str(nth), at=point.name, nth=nth)
                    assert nursery.live(life) == KILLED
                assert nursery.live(Life(folder=str(folder), name="follower")) == ENDED
                assert lines(folder, "reached").count("claim.after") == 1, "only the leader led"
                hold.release()
                assert leader.wait()[0] == ENDED
        outcome = examine(folder).outcome
        assert outcome.runs == {**usual.outcome.runs, "held": "SUCCEEDED"}
        assert usual.outcome.tasks.items() <= outcome.tasks.items()


def test_a_follower_submits_follows_and_leads_when_the_leader_is_killed(tmp_path: Path) -> None:
    folder = str(tmp_path)
    with Hold(tmp_path / "hold") as hold:
        first = Process(Life(folder=folder, name="first", runs=("held",), hold=hold.path))
        with first:
            first.hear("leads")
            first.hear("began held/one:materialize")
            second = Process(Life(folder=folder, name="second", runs=("chain", "held_too", "held")))
            with second:
                second.hear("follows")
                second.hear("ended chain SUCCEEDED")
                assert "leads" not in second.said, "the other one did the work"
                assert first.kill() == KILLED
                second.hear("leads")
                second.hear("ended held SUCCEEDED")
                assert second.wait() == (ENDED, "")
    found = examine(tmp_path)
    assert found.outcome.runs == dict.fromkeys(("chain", "held", "held_too"), "SUCCEEDED")
    assert found.leaders == 2


def test_nobody_leads_while_the_leader_is_stopped_and_it_goes_on_when_it_may(
    tmp_path: Path,
) -> None:
    folder = str(tmp_path)
    with Hold(tmp_path / "hold") as hold:
        leader = Process(Life(folder=folder, name="leader", runs=("held",), hold=hold.path))
        with leader:
            leader.hear("began held/one:materialize")
            leader.signal(signal.SIGSTOP)
            other = Process(Life(folder=folder, name="other", runs=("chain",)))
            with other:
                other.hear("promised chain")
                other.hear("refused", times=10)
                assert "leads" not in other.said
                leader.signal(signal.SIGCONT)
                other.hear("ended chain SUCCEEDED")
                assert other.wait() == (ENDED, "")
                hold.release()
                assert leader.wait() == (ENDED, "")
    found = examine(tmp_path)
    assert found.outcome.runs == {"chain": "SUCCEEDED", "held": "SUCCEEDED"}
    assert found.leaders == 1


# --- A full disk ----------------------------------------------------------------------------------


@pytest.mark.parametrize("room", [24_000, 60_000, 200_000])
def test_a_full_disk_stops_a_run_with_a_clear_message_and_it_goes_on_when_there_is_room(
    room: int, nursery: Nursery, usual: Calm
) -> None:
    size = 4_000_000
    with a_folder() as folder, small_disk(folder / "store", size):
        ballast = folder / "store" / "ballast"
        ballast.write_bytes(bytes(size - room))
        for number in range(2):
            life = Life(folder=str(folder), name=str(number))
            assert nursery.live(life) == 1
            [*_, complaint] = lines(folder, "stderr")
            assert complaint.startswith("Unavailable: ")
            assert "the disk is full" in complaint and "make room" in complaint
        assert "Traceback" not in "\n".join(lines(folder, "stderr"))
        ballast.unlink()
        assert nursery.end(folder).outcome == usual.outcome


# --- What the documentation says ------------------------------------------------------------------


def test_the_documentation_shows_every_point() -> None:
    page = (ROOT / "docs" / "explanation" / "durability.md").read_text()
    assert table() in page, "put servo.testing.crashes.table() into the page"
