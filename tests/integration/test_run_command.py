"""`servo run` as a person or a script meets it: processes that finish, fail, are stopped and killed."""

import json
import os
import pty
import re
import signal
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from tests.integration.command import SERVO, Done, environment, refused, run
from tests.integration.workplace import FAILS, GOOD, WAITS, Workplace, end, killed


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    return Workplace(tmp_path / "project", GOOD)


def only(done: Done) -> dict[str, Any]:
    """The one run that a command tells of as JSON."""
    [told] = json.loads(done.stdout)["runs"]
    assert isinstance(told, dict)
    return told


def status(place: Workplace) -> list[tuple[str, int, int]]:
    rows = json.loads(place.servo("status", "-o", "json").stdout)
    return [(row["state"], row["succeeded"], row["tasks"]) for row in rows]


def stopping(process: "subprocess.Popen[str]", caught: int) -> str:
    """Send a signal; what is said until it is heard."""
    process.send_signal(caught)
    assert process.stderr is not None
    said = ""
    while "Stopping" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    return said


def test_a_run_shows_each_task_and_how_it_ended(place: Workplace) -> None:
    done = place.servo("run")
    assert done.returncode == 0
    assert re.fullmatch(
        r"run \w{10}: 2 tasks in 2 stages\n"
        r"  succeeded  default\.orders   +[\d.]+ m?s\n"
        r"  succeeded  default\.revenue  +[\d.]+ m?s\n",
        done.stderr,
    )
    assert re.fullmatch(r"run \w{10} succeeded in [\d.]+ m?s: 2 succeeded\n", done.stdout)


def test_a_run_can_be_quiet(place: Workplace) -> None:
    done = place.servo("run", "-q")
    assert (done.returncode, done.stderr) == (0, "")
    assert "succeeded" in done.stdout


def test_a_run_records_a_version_of_each_asset(place: Workplace) -> None:
    place.servo("run", "-q")
    done = place.servo("sql", "select asset_key from partitions order by 1", "-o", "csv")
    assert done.stdout == "asset_key\ndefault/orders\ndefault/revenue\n"


def test_what_is_selected_runs_and_nothing_else(place: Workplace) -> None:
    done = place.servo("run", "orders", "--json", "-q")
    assert only(done)["tasks"] == {"succeeded": 1}


def test_a_plan_without_tasks_is_a_run_without_tasks(tmp_path: Path) -> None:
    place = Workplace(
        tmp_path,
        "from servo.types import DailyPartition\n\n"
        "@asset(partitions=DailyPartition('date', start='2024-01-01'))\ndef orders(): ...\n",
    )
    done = place.servo("run", "-q", "--now", "2023-01-01")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.endswith(": no tasks\n")
    told = place.servo("run", "--now", "2023-01-01").stderr
    assert told.endswith(
        ": nothing to do: default.orders has no partitions at 2023-01-01 00:00 UTC\n"
    )


def test_the_summary_can_be_had_as_json(tmp_path: Path) -> None:
    done = Workplace(tmp_path, FAILS).servo("run", "--json", "-q")
    assert (done.returncode, done.stderr) == (1, "")
    summary = only(done)
    assert summary["resumable"] is False
    assert (summary["state"], summary["reason"]) == ("FAILED", "tasks_failed")
    assert summary["tasks"] == {"succeeded": 1, "failed": 1, "skipped": 1}
    [failure] = summary["failures"]
    assert failure["task_key"] == "default/orders:materialize"
    assert failure["code"] == "USER_CODE_EXCEPTION"
    assert failure["next_step"]


def test_a_failure_is_told_with_the_users_lines_and_a_next_step(tmp_path: Path) -> None:
    done = Workplace(tmp_path, FAILS).servo("run")
    assert done.returncode == 1
    said = [re.split(" {2,}", line.strip()) for line in done.stderr.splitlines()]
    assert ["skipped", "default.revenue", "A task that it needs failed."] in said
    assert [line[2][:21] for line in said if line[0] == "failed"] == ["ValueError was raised"]
    assert "default.orders failed in attempt 1\n" in done.stdout
    assert '    raise ValueError("row 17 is not a number")\n' in done.stdout
    assert "    ValueError: row 17 is not a number\n" in done.stdout
    assert "servo/wiring" not in done.stdout and "servo/worker" not in done.stdout
    assert "fix the asset's code" in done.stdout


def test_what_an_exception_said_is_not_in_the_ledger(tmp_path: Path) -> None:
    place = Workplace(tmp_path, FAILS)
    place.servo("run")
    stored = [path for path in (tmp_path / ".servo").rglob("*") if path.is_file()]
    assert stored and not any(b"row 17" in path.read_bytes() for path in stored)


def test_failures_of_one_asset_that_say_the_same_are_told_once(tmp_path: Path) -> None:
    place = Workplace(
        tmp_path,
        "from servo.types import StaticPartition\n\n"
        "@asset(partitions=StaticPartition('region', ['eu', 'us', 'apac']))\n"
        "def orders():\n    raise ValueError('no')\n",
    )
    done = place.servo("run", "-q")
    assert "orders region=apac failed in attempt 1, and 2 more partitions like it" in done.stdout
    assert done.stdout.count("Traceback") == 1


def test_what_assets_print_is_no_part_of_the_answer(tmp_path: Path) -> None:
    place = Workplace(tmp_path, "@asset\ndef orders():\n    print('hello', end='')\n")
    done = place.servo("run", "--json")
    assert only(done)["state"] == "SUCCEEDED"
    assert "hello\n" in done.stderr
    assert done.stderr.startswith("run ")


def test_an_asset_that_ends_the_program_fails_alone(tmp_path: Path) -> None:
    place = Workplace(tmp_path, "@asset\ndef orders():\n    raise SystemExit(7)\n")
    done = place.servo("run")
    assert done.returncode == 1
    assert "SystemExit: 7" in done.stdout


def test_a_function_that_wants_arguments_is_refused_before_anything_runs(tmp_path: Path) -> None:
    place = Workplace(tmp_path, "@asset\ndef orders(day): ...\n")
    assert refused(place.servo("run")) == (
        "asset default.orders cannot run: its function wants day, and functions are called without"
        " arguments so far; remove the parameter, or give it a default"
    )
    assert not (tmp_path / ".servo").exists()


@pytest.mark.parametrize("word", ["def", "async def"])
def test_a_generator_is_refused_before_anything_runs(word: str, tmp_path: Path) -> None:
    place = Workplace(tmp_path, f"@asset\n{word} orders():\n    yield 1\n")
    assert refused(place.servo("run")) == (
        "asset default.orders cannot run: its function has a yield, and calling it would run none of"
        " its lines; do the work without yield"
    )
    assert not (tmp_path / ".servo").exists()


def test_a_wrong_selection_is_refused_before_anything_is_written(place: Workplace) -> None:
    assert "did you mean 'default.orders'?" in refused(place.servo("run", "ordrs"))
    assert not (place.folder / ".servo").exists()


def test_a_folder_without_a_project_is_told_what_to_write(tmp_path: Path) -> None:
    assert "there is no servo.toml" in refused(run("run", cwd=tmp_path))


def test_state_is_kept_out_of_version_control(place: Workplace) -> None:
    place.servo("run", "-q")
    assert (place.folder / ".servo" / ".gitignore").read_text().endswith("\n*\n")


def test_a_file_where_the_state_should_be_is_named(place: Workplace) -> None:
    (place.folder / ".servo").write_text("")
    for command in ("run", "status"):
        said = refused(place.servo(command))
        assert ".servo is a file" in said and "move the file away" in said


def test_a_folder_that_cannot_hold_state_is_named(place: Workplace) -> None:
    # /proc refuses new folders, to root too.
    (place.folder / ".servo").symlink_to("/proc")
    done = place.servo("run")
    assert done.returncode == 2
    assert ".servo" in done.stderr and "choose a folder on a local disk" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_terminal_gets_one_line_that_is_redrawn_and_what_failed(tmp_path: Path) -> None:
    place = Workplace(tmp_path, FAILS)
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(SERVO), "run"],
        cwd=place.folder,
        env=environment(TERM="xterm", COLUMNS="80"),
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    seen = b""
    with suppress(OSError):  # what Linux says when the other side is closed
        while some := os.read(ours, 65536):
            seen += some
    os.close(ours)
    assert process.wait(60) == 1
    shown = re.sub(r"\x1b\[\d*m", "", seen.decode())
    drawn = shown.split("\r\x1b[2K")
    assert any(re.match(r"\d of 3  ", line) for line in drawn)
    assert "  failed     default.orders" in shown
    assert "  succeeded  " not in shown
    assert drawn[-1].startswith("run ") and " failed in " in drawn[-1]
    assert "\x1b[31mfailed" in seen.decode()


def test_a_reader_that_leaves_early_does_not_end_the_run(place: Workplace) -> None:
    command = f"{SERVO} run 2>&1 >/dev/null | true"
    subprocess.run(["bash", "-c", command], cwd=place.folder, env=environment(), check=True)
    [row] = json.loads(place.servo("status", "-o", "json").stdout)
    assert row["state"] == "SUCCEEDED"


@pytest.mark.parametrize("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_closed_stream_is_no_problem(closed: str, place: Workplace) -> None:
    done = subprocess.run(
        ["bash", "-c", f"{SERVO} run {closed}"],
        cwd=place.folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr and "tasks in" not in done.stdout


# Run keys


def test_the_same_key_and_request_stand_for_the_same_run(place: Workplace) -> None:
    moment = ("--now", "2024-01-01")
    first = json.loads(place.servo("run", "--run-key", "nightly", "--json", *moment).stdout)
    again = place.servo("run", "--run-key", "nightly", "--json", *moment)
    assert json.loads(again.stdout) == first
    assert "the key 'nightly' stands for it already" in again.stderr


def test_the_same_key_for_another_request_is_refused(place: Workplace) -> None:
    place.servo("run", "-q", "--run-key", "nightly")
    done = place.servo("run", "-q", "orders", "--run-key", "nightly")
    assert done.returncode == 2
    assert "the run key 'nightly' stands for run" in done.stderr


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("", "--run-key is empty"),
        (" ", "--run-key is empty"),
        ("x" * 201, "up to 200 characters that can be printed, and this has 201 characters"),
        ("a\tb", "this has one that cannot be printed"),
    ],
)
def test_a_key_that_nobody_could_type_again_is_refused(
    key: str, said: str, place: Workplace
) -> None:
    assert said in refused(place.servo("run", "--run-key", key))
    assert not (place.folder / ".servo").exists()
    assert place.servo("run", "-q", "--run-key", "x" * 200).returncode == 0


def test_a_key_that_stands_for_a_run_of_other_code_is_refused(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    killed(place, "--run-key", "nightly")
    place.write(GOOD)
    done = place.servo("run", "--run-key", "nightly")
    assert done.returncode == 2
    assert re.search(
        r"waits for the code .* 'servo cancel \w{10}' and use another key", done.stderr
    )


# Stopping and going on


def test_resuming_when_nothing_is_left_says_so(place: Workplace) -> None:
    place.servo("run", "-q")
    done = place.servo("run", "--resume")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Nothing to resume: every run of this project has ended.\n"


def test_resuming_takes_no_selection(place: Workplace) -> None:
    assert "--resume asks for nothing new" in refused(place.servo("run", "--resume", "orders"))


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_run_that_is_stopped_finishes_what_runs_and_can_be_resumed(
    number: int, code: int, tmp_path: Path
) -> None:
    place = Workplace(tmp_path, WAITS)
    process = place.start("run")
    place.await_start()
    said = stopping(process, number)
    again = "Ctrl-C again" if number == signal.SIGINT else "another signal"
    assert f"waiting for 1 task at work; {again} leaves at once." in said
    place.open_gate()
    stopped = end(process)
    assert stopped.returncode == code
    assert "Stopped. 'servo run --resume' goes on from here." in stopped.stderr
    assert status(place) == [("RUNNING", 1, 2)]
    resumed = place.servo("run", "--resume")
    assert resumed.returncode == 0
    assert (tmp_path / "orders.log").read_text() == "began\n"
    tries = place.servo("sql", "select task_key, attempt, tries from tasks", "-o", "csv").stdout
    assert tries.splitlines()[1:] == [
        "default/orders:materialize,1,1",
        "default/revenue:materialize,1,1",
    ]


@pytest.mark.parametrize("resumed", [False, True])
def test_a_run_that_is_stopped_is_told_as_json_too(resumed: bool, tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    if resumed:
        killed(place)
    process = place.start("run", "--json", *(["--resume"] if resumed else []))
    place.await_start()
    stopping(process, signal.SIGINT)
    place.open_gate()
    told = only(end(process))
    assert (told["state"], told["resumable"], told["ended_at"]) == ("RUNNING", True, None)
    assert len(told["run_id"]) == 26


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_run_that_ends_while_it_is_stopped_has_ended(number: int, tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    process = place.start("run", "orders")
    place.await_start()
    stopping(process, number)
    place.open_gate()
    done = end(process)
    assert done.returncode == 0
    assert "resume" not in done.stderr
    assert re.fullmatch(r"run \w{10} succeeded in [\d.]+ m?s: 1 succeeded\n", done.stdout)


def test_a_second_ctrl_c_leaves_at_once(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    process = place.start("run")
    place.await_start()
    stopping(process, signal.SIGINT)
    process.send_signal(signal.SIGINT)
    done = end(process)
    assert done.returncode == 130
    assert done.stderr.endswith("Left at once. 'servo run --resume' goes on from here.\n")
    assert place.servo("ledger", "verify").returncode == 0


def test_a_run_that_was_killed_goes_on_where_it_was(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    process = place.start("run")
    place.await_start()
    process.kill()
    assert end(process).returncode == -signal.SIGKILL
    resumed = place.start("run", "--resume", "--json")
    place.await_start()
    place.open_gate()
    done = end(resumed)
    assert done.returncode == 0, done.stderr
    assert only(done)["tasks"] == {"succeeded": 2}
    assert (tmp_path / "orders.log").read_text() == "began\nbegan\n"
    assert place.servo("ledger", "verify").returncode == 0


def test_runs_of_other_code_are_named_and_left_for_it(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    killed(place)
    place.write(GOOD)
    done = place.servo("run", "--resume", "-q", "--json")
    assert done.returncode == 1
    told = only(done)
    assert (told["state"], told["resumable"]) == ("RUNNING", False)
    run = told["run_id"][:10]
    assert re.fullmatch(
        rf"run {run} of \S+ \S+ waits for the code it was asked for with, which is not what the project"
        rf" holds now; bring that code back and use --resume, or end the run with 'servo cancel {run}'"
        r"\n",
        done.stderr,
    )
    place.write(WAITS)
    resumed = place.start("run", "--resume")
    place.await_start()
    place.open_gate()
    assert end(resumed).returncode == 0


def test_a_plain_run_leaves_older_runs_alone_and_says_what_to_do(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    killed(place)
    done = place.servo("run", "revenue")
    assert done.returncode == 0
    assert re.match(
        r"1 older run has not ended \((\w{10})\): 'servo run --resume' goes on,"
        r" 'servo cancel RUN' ends one\nrun (?!\1)\w{10}: 1 task in 1 stage\n",
        done.stderr,
    )
    assert (tmp_path / "orders.log").read_text() == "began\n"
    assert status(place) == [("SUCCEEDED", 1, 1), ("RUNNING", 0, 2)]


def test_no_older_runs_are_not_mentioned(place: Workplace) -> None:
    place.servo("run", "-q")
    assert "older" not in place.servo("run").stderr


def test_a_key_that_stands_for_an_older_run_goes_on_with_it(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    killed(place, "--run-key", "nightly")
    again = place.start("run", "--run-key", "nightly")
    place.await_start()
    place.open_gate()
    done = end(again)
    assert done.returncode == 0
    assert "older" not in done.stderr and "'nightly' stands for it already" in done.stderr


KILLS = """\
import os


@asset
def orders():
    os._exit(7)


@asset
def customers(): ...
"""


def test_an_asset_that_ends_its_process_is_in_nobodys_way(tmp_path: Path) -> None:
    place = Workplace(tmp_path, KILLS)
    assert place.servo("run", "orders").returncode == 7
    other = place.servo("run", "customers")
    assert other.returncode == 0
    assert other.stderr.startswith("1 older run has not ended")
    assert status(place) == [("SUCCEEDED", 1, 1), ("RUNNING", 0, 1)]


def test_an_asset_that_ends_its_process_counts_after_three_times(tmp_path: Path) -> None:
    place = Workplace(tmp_path, KILLS)
    assert place.servo("run", "orders").returncode == 7
    for _ in range(3):
        assert place.servo("run", "--resume").returncode == 7
    process = place.start("run", "--resume")
    assert process.stderr is not None
    said = ""
    while "again in" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)  # rather than wait for the next attempt
    assert end(process).returncode == 130
    found = place.servo("sql", "select attempt, error_code from attempts order by 1", "-o", "csv")
    assert found.stdout.splitlines()[1:] == [
        *("1,INTERRUPTED", "2,INTERRUPTED", "3,INTERRUPTED"),
        "4,WORKER_CRASH",
    ]
    tries = place.servo("sql", "select attempt, tries from tasks", "-o", "csv")
    assert tries.stdout.splitlines()[1:] == ["4,1"]


# Two processes


def test_a_second_process_follows_and_its_run_is_made_by_the_first(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    first = place.start("run", "orders")
    place.await_start()
    second = place.start("run", "revenue")
    done = end(second)
    assert done.returncode == 0
    assert "not ended" not in done.stderr and "waits for" not in done.stderr
    assert re.match(r"Another process leads this workspace \(writer \w{26}\)\.", done.stderr)
    assert first.poll() is None
    place.open_gate()
    assert end(first).returncode == 0
    workers = place.servo("sql", "select count(distinct worker) n from attempts", "-o", "csv")
    assert workers.stdout == "n\n1\n"


def test_a_second_process_with_other_code_leads_when_the_first_leaves(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    first = place.start("run", "orders")
    place.await_start()
    place.write(GOOD)
    second = place.start("run")
    assert second.stderr is not None
    assert second.stderr.readline().startswith("Another process leads")
    assert second.stderr.readline().startswith("run ")
    place.open_gate()
    assert end(first).returncode == 0
    done = end(second)
    assert done.returncode == 0, done.stderr
    # The first had its own code: nothing of its run waited for another.
    assert "not ended" not in done.stderr and "waits for" not in done.stderr
    assert place.servo("ledger", "verify").returncode == 0
    leaders = place.servo(
        "sql", "select count(*) n from audit where action = 'leader_claimed'", "-o", "csv"
    )
    assert leaders.stdout == "n\n2\n"


def test_a_full_disk_is_told_and_nothing_is_lost(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "none", str(small)], capture_output=True
    )
    if mounted.returncode:
        pytest.skip("only root may mount a disk that is this small")
    try:
        place = Workplace(tmp_path / "project", GOOD)
        (place.folder / ".servo").symlink_to(small)
        assert place.servo("run", "-q").returncode == 0
        filler = small / "filler"
        with suppress(OSError), filler.open("wb", buffering=0) as file:
            while True:
                file.write(b"x" * 4096)
        done = place.servo("run")
        assert done.returncode == 1
        assert "the disk is full; make room" in done.stderr and "Traceback" not in done.stderr
        filler.unlink()
        assert place.servo("run", "-q").returncode == 0
        assert place.servo("ledger", "verify").returncode == 0
    finally:
        subprocess.run(["umount", str(small)], check=True)
