"""`servo cancel`: with nobody at work, behind a leader, and with code that is gone."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.integration.command import refused, run
from tests.integration.workplace import GOOD, WAITS, Workplace, end, killed


def runs(place: Workplace) -> list[dict[str, Any]]:
    found = json.loads(place.servo("status", "-o", "json").stdout)
    assert isinstance(found, list)
    return found


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    """A project with a run whose process is gone. Its tables may not know of it yet."""
    place = Workplace(tmp_path, WAITS)
    killed(place)
    return place


def newest_run(place: Workplace) -> str:
    events = place.servo("ledger", "tail", "-n", "100", "-o", "json").stdout.splitlines()
    [*_, run_id] = [
        event["payload"]["run_id"]
        for event in map(json.loads, events)
        if event["event_type"] == "RunTriggered"
    ]
    assert isinstance(run_id, str)
    return run_id


def test_a_run_that_nobody_is_at_work_on_ends(place: Workplace) -> None:
    run_id = newest_run(place)
    done = place.servo("cancel", run_id[:10].lower(), "--message", "not needed any more")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        rf"run {run_id[:10]} cancelled in [\d.]+ m?s: 2 cancelled\n",
        done.stdout,
    )
    [told] = runs(place)
    assert (told["state"], told["reason"]) == ("CANCELLED", "user_cancelled")
    assert "It was told: not needed any more" in place.servo("status", run_id).stdout
    assert place.servo("run", "--resume").stderr.startswith("Nothing to resume")
    assert place.servo("ledger", "verify").returncode == 0


def test_the_code_of_the_run_is_not_needed(place: Workplace) -> None:
    (place.folder / "work.py").write_text("this is no Python")
    assert place.servo("cancel", newest_run(place)).returncode == 0
    assert [told["state"] for told in runs(place)] == ["CANCELLED"]


def test_a_leader_is_told_and_waited_for(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    leader = place.start("run")
    place.await_start()
    cancel = place.start("cancel", newest_run(place))
    assert cancel.stderr is not None
    assert cancel.stderr.readline().startswith("Another process leads this workspace and was told")
    assert cancel.poll() is None
    place.open_gate()  # a function in a thread is waited for
    done = end(cancel)
    assert done.returncode == 0
    assert " cancelled in " in done.stdout
    assert end(leader).returncode == 1
    [told] = runs(place)
    assert (told["state"], told["cancelled"]) == ("CANCELLED", 2)
    made = place.servo("sql", "select count(*) as made from partitions", "-o", "csv")
    assert made.stdout == "made\n0\n"


def test_who_does_not_want_to_wait_can_leave(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    leader = place.start("run")
    place.await_start()
    cancel = place.start("cancel", newest_run(place))
    assert cancel.stderr is not None
    assert "Ctrl-C leaves, and the run ends all the same" in cancel.stderr.readline()
    cancel.send_signal(signal.SIGINT)
    done = end(cancel)
    assert done.returncode == 130
    assert "Traceback" not in done.stderr
    place.open_gate()
    assert end(leader).returncode == 1
    assert [told["state"] for told in runs(place)] == ["CANCELLED"]


def test_other_runs_are_left_alone(place: Workplace) -> None:
    first = newest_run(place)
    killed(place)
    assert place.servo("cancel", newest_run(place)).returncode == 0
    assert [(told["run_id"] == first, told["state"]) for told in runs(place)] == [
        (False, "CANCELLED"),
        (True, "RUNNING"),
    ]


def test_a_run_that_has_ended_is_refused(tmp_path: Path) -> None:
    place = Workplace(tmp_path, GOOD)
    place.servo("run", "-q")
    [told] = runs(place)
    head = place.servo("ledger", "verify").stdout
    assert refused(place.servo("cancel", told["run_id"])) == (
        f"run {told['run_id'][:10]} has ended already, as SUCCEEDED: Every task succeeded or was"
        " reused. There is nothing to cancel"
    )
    # A mistake leaves no trace.
    assert place.servo("ledger", "verify").stdout.splitlines()[1:] == head.splitlines()[1:]


def test_an_unknown_run_is_refused(place: Workplace) -> None:
    for text in ("nope", ""):
        assert (
            refused(place.servo("cancel", text))
            == f"there is no run {text!r}; 'servo status' lists runs"
        )


def test_a_beginning_that_several_runs_have_is_refused(place: Workplace) -> None:
    killed(place)
    assert re.fullmatch(
        r"2 runs begin with '01' \(\w+, \w+\); write more of the id",
        refused(place.servo("cancel", "01")),
    )


def test_a_message_that_nobody_could_read_is_refused(place: Workplace) -> None:
    assert "--message takes up to 500 characters" in refused(
        place.servo("cancel", "01", "--message", "x\ny")
    )


def test_before_the_first_run_there_is_nothing_to_cancel(tmp_path: Path) -> None:
    place = Workplace(tmp_path, GOOD)
    assert "Nothing has run here yet" in refused(place.servo("cancel", "01"))
    assert not (tmp_path / ".servo").exists()


def test_a_folder_without_a_project_is_told(tmp_path: Path) -> None:
    assert "there is no servo.toml" in refused(run("cancel", "01", cwd=tmp_path))
