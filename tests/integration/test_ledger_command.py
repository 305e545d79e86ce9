"""`servo ledger`: verify, tail and show, on ledgers that are whole and on ledgers that are not."""

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.integration.command import Done, refused, run
from tests.integration.workplace import GOOD, WAITS, Workplace, end


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    place = Workplace(tmp_path_factory.mktemp("project"), GOOD)
    assert place.servo("run", "-q").returncode == 0
    assert place.servo("run", "-q").returncode == 0
    return place


@pytest.fixture
def place(original: Workplace, tmp_path: Path) -> Workplace:
    """A copy, to damage."""
    shutil.copytree(original.folder / ".servo", tmp_path / ".servo")
    return Workplace(tmp_path, GOOD)


def root(place: Workplace) -> Path:
    return place.folder / ".servo" / "local" / "main"


def log(place: Workplace) -> Path:
    [file] = root(place).glob("ledger/*.jsonl")
    return file


def damaged(done: Done) -> str:
    assert (done.returncode, done.stderr) == (1, "")
    assert "The ledger is what was written" not in done.stdout
    assert "Traceback" not in done.stdout
    return done.stdout


def test_a_whole_ledger_is_said_to_be_one(original: Workplace) -> None:
    done = original.servo("ledger", "verify")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.fullmatch(
        r"\d+ segments, \d+ events, 3 stored values, [\d,]+ KiB, checked in [\d.]+ m?s\n"
        r"head (\d+)  sha256:[0-9a-f]{64}\n"
        r"revision \d+ vouches for 1 to \1; it names \d+ table files, and is whole\n"
        r"The ledger is what was written\.\n",
        done.stdout,
    )


def test_a_hash_that_was_noted_down_is_found_again(original: Workplace) -> None:
    found = re.search(r"head (\d+)  (\S+)", original.servo("ledger", "verify").stdout)
    assert found is not None
    done = original.servo("ledger", "verify", "--head", found[2])
    assert f"the given hash vouches for 1 to {found[1]}\n" in done.stdout
    assert "no segment has the hash" in damaged(
        original.servo("ledger", "verify", "--head", "sha256:" + "0" * 63 + "1")
    )


def test_a_hash_that_is_none_is_refused(original: Workplace) -> None:
    assert "is not the hash of a segment" in refused(
        original.servo("ledger", "verify", "--head", "abc")
    )


def test_a_changed_byte_is_found(place: Workplace) -> None:
    data = log(place).read_bytes()
    assert b'"attempt":1' in data
    log(place).write_bytes(data.replace(b'"attempt":1', b'"attempt":2', 1))
    said = damaged(place.servo("ledger", "verify"))
    assert re.search(r"a line of segment \d+ was changed", said)
    assert "restore the parts named above from a copy" in said


def test_a_file_that_was_cut_is_found(place: Workplace) -> None:
    data = log(place).read_bytes()
    log(place).write_bytes(data[: len(data) // 2])
    assert re.search(
        r"the ledger ends with segment \d+, and revision \d+ covers it up to \d+: it was cut short",
        damaged(place.servo("ledger", "verify")),
    )
    done = place.servo("run", "-q")
    assert done.returncode == 1 and "it was cut short; restore it from a copy" in done.stderr


def test_a_file_that_is_gone_is_found(place: Workplace) -> None:
    log(place).unlink()
    assert "the ledger ends with segment 0" in damaged(place.servo("ledger", "verify"))


def test_a_manifest_that_is_gone_is_found(place: Workplace) -> None:
    *_, newest = sorted(root(place).glob("manifests/*.json"))
    newest.unlink()
    said = damaged(place.servo("ledger", "verify"))
    assert f"revision {int(newest.stem)} is gone" in said
    # The tables of the one before are as good, and the ledger has the rest.
    assert place.servo("status").returncode == 0
    assert place.servo("run", "-q").returncode == 0


def test_values_that_are_gone_or_changed_are_found(place: Workplace) -> None:
    one, two, _ = sorted(root(place).glob("objects/*"))
    one.unlink()
    two.write_bytes(b"{}")
    said = damaged(place.servo("ledger", "verify"))
    assert re.search(rf"objects/{one.name} is gone, and the \w+ at \d+:\d+ names it", said)
    assert f"objects/{two.name} was changed: it does not match its name" in said


def test_table_files_that_are_gone_or_changed_are_found(place: Workplace) -> None:
    # Files of the newest revision have the newest names: they begin with their ULID.
    one, two = sorted(root(place).glob("tables/runs/*.parquet"))[-2:]
    one.unlink()
    two.write_bytes(two.read_bytes() + b" ")
    done = place.servo("ledger", "verify")
    assert (done.returncode, done.stderr) == (1, "")
    assert "2 findings:" in done.stdout
    assert re.search(rf"tables/runs/{one.name} is gone, and revision \d+ names it", done.stdout)
    assert f"tables/runs/{two.name} was changed: it does not match the hash" in done.stdout
    assert "The ledger is what was written.\nTables are made from it" in done.stdout
    for folder in ("tables", "manifests"):
        shutil.rmtree(root(place) / folder)
    assert place.servo("run", "-q").returncode == 0
    assert place.servo("ledger", "verify").returncode == 0


def test_all_that_is_wrong_is_listed(place: Workplace) -> None:
    data = log(place).read_bytes().replace(b'"attempt":1', b'"attempt":2', 1)
    log(place).write_bytes(data[:-5])
    for value in root(place).glob("objects/*"):
        value.unlink()
    said = damaged(place.servo("ledger", "verify"))
    assert "5 findings:" in said


@pytest.mark.parametrize("command", [["tail"], ["show", "3"], ["tail", "-o", "json"]])
def test_what_cannot_be_read_is_named_and_points_to_verify(
    command: list[str], place: Workplace
) -> None:
    data = log(place).read_bytes()
    log(place).write_bytes(data.replace(b'"epoch":1', b'"epoch":9', 1))
    done = place.servo("ledger", *command)
    assert done.returncode == 1
    assert "Traceback" not in done.stderr and "'servo ledger verify'" in done.stderr


def test_the_last_events_are_shown(original: Workplace) -> None:
    done = original.servo("ledger", "tail", "-n", "2")
    assert (done.returncode, done.stderr) == (0, "")
    made, finished = (re.split(" {2,}", line.strip()) for line in done.stdout.splitlines())
    assert made[3:5] == ["MaterializationCompleted", "default.revenue"]
    assert finished[2:7] == ["worker", "TaskFinished", "default.revenue", "attempt 1", "succeeded"]


@pytest.mark.parametrize("count", [0, 1, 7, 10_000])
def test_as_many_events_are_shown_as_were_asked_for(count: int, original: Workplace) -> None:
    every = original.servo("ledger", "tail", "-n", "10000", "-o", "json").stdout.splitlines()
    some = original.servo("ledger", "tail", "-n", str(count), "-o", "json").stdout.splitlines()
    assert some == every[len(every) - min(count, len(every)) :]


def test_events_can_be_had_as_json_lines(original: Workplace) -> None:
    lines = original.servo("ledger", "tail", "-n", "1000", "-o", "json").stdout.splitlines()
    events = [json.loads(line) for line in lines]
    assert (events[0]["position"], events[0]["index"]) == (1, 0)
    assert events[0]["event_type"] == "LeaderClaimed"
    assert {"RunTriggered", "TaskFinished"} <= {event["event_type"] for event in events}


def test_new_events_are_followed(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    running = place.start("run")
    place.await_start()
    following = place.start("ledger", "tail", "-n", "1", "--follow", "-o", "json")
    assert following.stdout is not None
    assert json.loads(following.stdout.readline())["event_type"] != "TaskFinished"
    place.open_gate()
    while json.loads(following.stdout.readline())["event_type"] != "TaskFinished":
        pass
    following.terminate()
    end(following)
    assert end(running).returncode == 0


def test_a_ledger_can_be_verified_while_it_is_written(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    running = place.start("run")
    place.await_start()
    assert place.servo("ledger", "verify").returncode == 0
    place.open_gate()
    assert end(running).returncode == 0


def test_a_segment_is_shown_with_its_header_and_events(original: Workplace) -> None:
    done = original.servo("ledger", "show", "1")
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^prev_hash   sha256:0{64}$", done.stdout, re.MULTILINE)
    assert "event 1:0\n" in done.stdout
    assert '    "epoch": 1,\n' in done.stdout


def test_a_segment_that_is_not_there_is_refused(original: Workplace) -> None:
    assert re.fullmatch(
        r"there is no segment 9999: the last one is \d+",
        refused(original.servo("ledger", "show", "9999")),
    )


def test_before_the_first_run_there_is_no_ledger(tmp_path: Path) -> None:
    place = Workplace(tmp_path, GOOD)
    assert place.servo("ledger", "verify").stdout.startswith("Nothing has run here yet")
    assert place.servo("ledger", "tail").stderr.startswith("Nothing has run here yet")
    assert "Nothing has run here yet" in refused(place.servo("ledger", "show", "1"))
    assert not (tmp_path / ".servo").exists()


def test_a_read_only_folder_can_be_read(place: Workplace) -> None:
    for path in sorted((place.folder / ".servo").rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    for command in (["ledger", "verify"], ["ledger", "tail"], ["status"]):
        assert place.servo(*command).returncode == 0


def test_help_lists_what_there_is() -> None:
    done = run("ledger", "--help")
    assert [name in done.stdout for name in ("verify", "tail", "show")] == [True] * 3


def test_no_command_is_answered_with_the_help() -> None:
    done = run("ledger")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == run("ledger", "--help").stdout


def test_an_unknown_command_is_guessed() -> None:
    assert "'verify'" in refused(run("ledger", "verfy"))
