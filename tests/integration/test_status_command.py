"""`servo status` reads Parquet and nothing else."""

import asyncio
import csv
import fcntl
import io
import json
import re
import shutil
from pathlib import Path

import pytest

from servo.fold.table import Row
from servo.fold.tables import TABLES
from servo.ledger.snapshot import Snapshot
from servo.wiring.stores import open_store
from tests.integration.command import Done, refused, run
from tests.integration.test_cli import on_a_terminal
from tests.integration.workplace import FAILS, GOOD, WAITS, Workplace, end, killed


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    """A project with a run that failed and, after it, one that did not."""
    place = Workplace(tmp_path_factory.mktemp("project"), FAILS)
    assert place.servo("run", "-q").returncode == 1
    assert place.servo("run", "-q", "customers", "--run-key", "k").returncode == 0
    return place


def ids(place: Workplace) -> list[str]:
    return [row["run_id"] for row in json.loads(place.servo("status", "-o", "json").stdout)]


def test_runs_are_listed_the_latest_first(place: Workplace) -> None:
    done = place.servo("status")
    assert done.returncode == 0
    head, *lines = done.stdout.splitlines()
    assert head.split() == "run state tasks failed skipped key started (UTC) took why".split()
    assert [re.split(" {2,}", line)[1:3] for line in lines] == [
        ["succeeded", "1/1"],
        ["failed", "3/3"],
    ]
    assert re.search(r"succeeded  1/1 +k ", lines[0])
    assert lines[1].endswith("At least one task failed.")


def test_the_revision_is_told(place: Workplace) -> None:
    assert re.fullmatch(
        r"as of revision \d+, published [\d-]+ [\d:]+ UTC, ledger position \d+\n",
        place.servo("status").stderr,
    )


def test_columns_line_up(place: Workplace) -> None:
    head, *lines = place.servo("status").stdout.splitlines()
    for name in ("state", "started", "why"):
        assert all(line[head.index(name) - 1] == " " != line[head.index(name)] for line in lines)


def test_runs_can_be_limited(place: Workplace) -> None:
    done = place.servo("status", "--limit", "1")
    assert len(done.stdout.splitlines()) == 2
    assert done.stderr.startswith("and 1 earlier run: --limit shows more\n")


def test_tasks_of_a_run_are_listed_failures_first(place: Workplace) -> None:
    done = place.servo("status", ids(place)[1])
    title, counts, _, head, *lines = done.stdout.splitlines()
    assert re.fullmatch(r"run \w{10,} failed: At least one task failed\.", title)
    assert counts.startswith("1 succeeded, 1 failed, 1 skipped of 3 tasks, started ")
    assert head.split() == "task state attempt took why".split()
    told = [re.split(" {2,}", line) for line in lines]
    assert [row[:2] for row in told] == [
        ["default.orders", "failed"],
        ["default.revenue", "skipped"],
        ["default.customers", "succeeded"],
    ]
    assert told[0][-1].startswith("ValueError was raised at ")
    assert told[1][-1] == "A task that it needs failed."


def test_a_beginning_of_an_id_is_enough(place: Workplace) -> None:
    shown = place.servo("status").stdout.splitlines()[2].split()[0]
    assert (
        place.servo("status", shown.lower()).stdout == place.servo("status", ids(place)[1]).stdout
    )


def test_a_beginning_that_several_runs_have_is_refused(place: Workplace) -> None:
    assert re.fullmatch(
        r"2 runs begin with '01' \(\w+, \w+\); write more of the id",
        refused(place.servo("status", "01")),
    )


def test_an_unknown_run_is_refused(place: Workplace) -> None:
    assert (
        refused(place.servo("status", "nope"))
        == "there is no run 'nope'; 'servo status' lists runs"
    )


def rows(done: Done, form: str) -> list[dict[str, str]]:
    assert done.returncode == 0
    return (
        json.loads(done.stdout)
        if form == "json"
        else list(csv.DictReader(io.StringIO(done.stdout)))
    )


@pytest.mark.parametrize("form", ["json", "csv"])
def test_programs_get_every_field(form: str, place: Workplace) -> None:
    [good, bad] = rows(place.servo("status", "-o", form), form)
    assert (good["state"], good["run_key"], str(good["tasks"])) == ("SUCCEEDED", "k", "1")
    assert (bad["reason"], str(bad["failed"])) == ("tasks_failed", "1")
    tasks = rows(place.servo("status", bad["run_id"], "-o", form), form)
    assert [task["state"] for task in tasks] == ["FAILED", "SKIPPED", "SUCCEEDED"]
    assert tasks[0]["error_code"] == "USER_CODE_EXCEPTION"


def test_before_the_first_run_there_is_nothing(tmp_path: Path) -> None:
    place = Workplace(tmp_path, GOOD)
    done = place.servo("status")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Nothing has run here yet: 'servo run' starts a run.\n"
    assert json.loads(place.servo("status", "-o", "json").stdout) == []
    assert not (tmp_path / ".servo").exists()


def test_a_folder_without_a_project_is_told(tmp_path: Path) -> None:
    assert "there is no servo.toml" in refused(run("status", cwd=tmp_path))


def test_users_code_is_not_loaded(tmp_path: Path) -> None:
    place = Workplace(tmp_path, "raise RuntimeError")
    assert place.servo("status").returncode == 0


def test_a_terminal_gets_colours_and_the_same_words(place: Workplace) -> None:
    shown = on_a_terminal("status", "--project", str(place.folder))
    assert "\x1b[31mfailed\x1b[0m" in shown and "\x1b[32msucceeded\x1b[0m" in shown
    assert re.sub(r"\x1b\[\d*m", "", shown) == place.servo("status").stdout
    plain = on_a_terminal("status", "--project", str(place.folder), NO_COLOR="1")
    assert plain == place.servo("status").stdout


def test_a_table_file_that_was_changed_is_named(place: Workplace, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(place.folder / ".servo", tmp_path / ".servo"))
    (tmp_path / "servo.toml").write_text('modules = ["work"]\n')
    for file in copy.rglob("tables/runs/*.parquet"):
        file.write_bytes(file.read_bytes()[:-1] + b"x")
    done = run("status", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert re.match(r"servo: table 'runs': its file \S+ was changed", done.stderr)
    assert "Traceback" not in done.stderr


def test_why_and_when_are_the_same_in_every_form(place: Workplace) -> None:
    bad = ids(place)[1]
    told = rows(place.servo("status", bad, "-o", "json"), "json")
    listed = rows(place.servo("status", bad, "-o", "csv"), "csv")
    shown = place.servo("status", bad).stdout.splitlines()[4:]
    assert [task["why"] for task in told] == [task["why"] for task in listed]
    assert all(line.endswith(task["why"]) for line, task in zip(shown, told, strict=True))
    # What ran began at some time, however short it was.
    assert [bool(task["started_at"]) for task in told] == [True, False, True]


# Runs that have not ended


def test_what_is_not_in_the_tables_yet_is_counted(tmp_path: Path) -> None:
    place = Workplace(tmp_path, "import os\n\n\n@asset\ndef orders():\n    os._exit(7)\n")
    place.servo("run")
    said = (
        r"\d newer segments of the ledger are not in the tables yet: the next 'servo run' or"
        r" 'servo run --resume' puts them there\n"
    )
    for command in (["status"], ["status", "-o", "json"], ["sql", "select * from runs"]):
        done = place.servo(*command)
        assert done.returncode == 0
        assert re.fullmatch(said, done.stderr)
    unknown = place.servo("status", "01")
    assert unknown.returncode == 2
    assert re.fullmatch(said + r"servo: there is no run '01'; .*\n", unknown.stderr)


def test_what_is_not_in_the_tables_yet_will_be_while_a_command_runs(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    killed(place)
    # Whoever leads and does nothing: the tables stay behind.
    with open(tmp_path / ".servo" / "local" / "main" / "leader.lock") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for table in (tmp_path / ".servo" / "local" / "main" / "manifests").glob("*"):
            table.unlink()
        assert re.search(
            r"\d newer segments of the ledger are not in the tables yet: they will be within a second",
            place.servo("status").stderr,
        )


def test_a_run_that_nothing_is_at_work_on_says_so(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    killed(place)
    place.servo("run", "-q", "revenue")  # makes the tables, and leaves the older run alone
    stopped = "stopped; 'servo run --resume' goes on, 'servo cancel' ends it"
    done = place.servo("status")
    assert done.stdout.splitlines()[2].endswith(stopped)
    assert done.stderr.endswith(
        "1 run has not ended, and nothing is at work here: 'servo run --resume' goes on,"
        " 'servo cancel RUN' ends one\n"
    )
    [_, older] = json.loads(place.servo("status", "-o", "json").stdout)
    assert older["why"] == stopped
    run = older["run_id"]
    assert place.servo("status", run).stdout.splitlines()[0].endswith(f" running: {stopped}")
    told = rows(place.servo("status", run, "-o", "json"), "json")
    assert [(task["state"], task["waits_for"]) for task in told] == [
        ("RETRY_WAIT", "waiting_for_engine"),
        ("PENDING", "waiting_for_upstream"),
    ]
    assert told[1]["why"] == "Other tasks of the run must end first."


def test_a_run_at_work_takes_time_until_now(tmp_path: Path) -> None:
    place = Workplace(tmp_path, WAITS)
    process = place.start("run")
    place.await_start()
    while not json.loads(place.servo("status", "-o", "json").stdout):
        pass  # published within a second
    first, second = (place.servo("status") for _ in range(2))
    assert "stopped" not in first.stdout and "nothing is at work" not in first.stderr
    took = [re.split(" {2,}", done.stdout.splitlines()[1])[-2] for done in (first, second)]
    assert took[0] != took[1]
    place.open_gate()
    assert end(process).returncode == 0


def test_a_damaged_ledger_does_not_hide_the_tables(place: Workplace, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(place.folder / ".servo", tmp_path / ".servo"))
    (tmp_path / "servo.toml").write_text('modules = ["work"]\n')
    [log] = copy.rglob("ledger/*.jsonl")
    log.write_bytes(log.read_bytes()[:-100])
    done = run("status", cwd=tmp_path)
    assert done.returncode == 0
    assert done.stdout == place.servo("status").stdout
    assert "before these tables do: 'servo ledger verify' says what is wrong" in done.stderr
    log.write_bytes(b"x\n" + log.read_bytes())
    done = run("status", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, place.servo("status").stdout)
    assert "whether the ledger has more is not known" in done.stderr


def test_without_tables_the_next_run_makes_them_again(place: Workplace, tmp_path: Path) -> None:
    copy = Workplace(tmp_path, FAILS)
    shutil.copytree(place.folder / ".servo", tmp_path / ".servo")
    root = tmp_path / ".servo" / "local" / "main"
    before = contents(copy)
    assert all(before.values())
    shutil.rmtree(root / "tables")
    shutil.rmtree(root / "manifests")
    assert "newer segments of the ledger are not in the tables yet" in copy.servo("status").stderr
    assert copy.servo("run", "--resume").returncode == 0
    last = max(row[-2] for rows in before.values() for row in rows)  # type: ignore[type-var]  # integers
    after = contents(copy)
    # That somebody led once more is the only news.
    news = {name: [row for row in rows if row not in before[name]] for name, rows in after.items()}
    assert {name: len(rows) for name, rows in news.items() if rows} == {"audit": 1}
    assert news["audit"][0][-2] > last  # type: ignore[operator]  # integers
    assert {
        name: [row for row in rows if row not in news[name]] for name, rows in after.items()
    } == (before)
    assert copy.servo("ledger", "verify").returncode == 0


def contents(place: Workplace) -> dict[str, list[Row]]:
    async def read() -> dict[str, list[Row]]:
        snapshot = await Snapshot.open(open_store(place.folder / ".servo").objects, TABLES)
        return {table.name: await snapshot.rows(table) for table in TABLES}

    return asyncio.run(read())
