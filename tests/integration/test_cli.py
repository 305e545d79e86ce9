"""The command line as a person or a script meets it: a process with two streams and an exit code."""

import functools
import json
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

import servo
from tests.integration.command import NOW, SERVO, SHOP, Done, environment, refused, run, run_here

SHOWN = ("plan", "--project", str(SHOP), "--now", NOW)


def plan(
    *arguments: str | bytes, project: Path = SHOP, cwd: Path | None = None, **env: str
) -> Done:
    return run("plan", "--project", str(project), "--now", NOW, *arguments, cwd=cwd, **env)


@functools.cache
def usual() -> str:
    """What `plan()` prints."""
    return plan().stdout


def plan_here(*arguments: str) -> Done:
    return run_here([*SHOWN, *arguments])


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A copy of the example, to change."""
    return Path(shutil.copytree(SHOP, tmp_path / "shop", ignore=shutil.ignore_patterns("__*")))


# Help and mistakes


@pytest.mark.parametrize("option", ["--help", "-h"])
def test_help_lists_the_commands(option: str) -> None:
    done = run(option)
    assert (done.returncode, done.stderr) == (0, "")
    assert re.search(r"^  plan +Show what would run", done.stdout, re.MULTILINE)


def test_no_command_is_answered_with_the_help_on_stderr() -> None:
    done = run()
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == run("--help").stdout


def test_help_of_a_command_lists_its_options() -> None:
    done = run("plan", "--help")
    assert (done.returncode, done.stderr) == (0, "")
    for option in ("-p", "--force", "--now", "--out", "--diff", "--json", "--project"):
        assert f" {option}" in done.stdout


def test_help_has_no_trailing_spaces() -> None:
    assert not re.search(r" $", run("plan", "--help").stdout, re.MULTILINE)


@pytest.mark.parametrize("option", ["--version", "-V"])
def test_the_version_is_that_of_the_package(option: str) -> None:
    done = run(option)
    assert (done.returncode, done.stdout) == (0, f"servo {servo.__version__}\n")


def test_an_unknown_command_is_guessed() -> None:
    assert refused(run("pln")) == (
        "there is no command 'pln'; did you mean 'plan'?\nTry 'servo --help'."
    )


def test_an_unknown_command_that_is_like_none_is_told_which_there_are() -> None:
    assert refused(run("xyz")).startswith("there is no command 'xyz'; commands: plan, run, ")


def test_an_unknown_option_is_guessed() -> None:
    message = refused(run("plan", "--parttion", "date=1"))
    assert "'--parttion'" in message and "'--partition'" in message
    assert message.endswith("\nTry 'servo plan --help'.")


@pytest.mark.parametrize("arguments", [["plan", "-p"], ["plan", "--json=1"]])
def test_a_wrong_use_of_options_is_one_sentence_and_a_pointer(arguments: list[str]) -> None:
    assert re.fullmatch(r".+\nTry 'servo( plan)? --help'\.", refused(run(*arguments)))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["status", "--limit", "abc"], "'abc' is not a whole number from 1 up"),
        (["status", "--limit", "0"], "'0' is not a whole number from 1 up"),
        (["run", "--concurrency", "9999"], "'9999' is not a whole number from 1 to 1024"),
        (["ledger", "tail", "-n", "1.5"], "'1.5' is not a whole number from 0 up"),
        (["ledger", "show", "x"], "'x' is not a whole number from 1 up"),
    ],
)
def test_a_number_that_is_none_is_told_what_would_be_one(arguments: list[str], said: str) -> None:
    message = refused(run(*arguments))
    assert re.fullmatch(rf"invalid value for '.+': {said}\nTry 'servo .+ --help'\.", message)


# The plan


def test_the_plan_of_the_example_is_this_one() -> None:
    done = plan()
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        re.sub("[0-9a-f]{16}…", "*…", done.stdout)
        == """\
47 tasks in 4 stages, planned for 2024-02-01 06:00 UTC
v1:sha256:*…
each: stale because it was never made

stage 1
  raw.customers             selected
  raw.orders                9 partitions, date=2024-01-22 … date=2024-01-30
                            upstream of shop.clean_orders
                            date=2024-01-31  selected

stage 2
  shop.clean_orders         7 partitions, date=2024-01-22 … date=2024-01-28
                            upstream of shop.daily_revenue
                            2 partitions, date=2024-01-29 … date=2024-01-30
                            upstream of shop.returning_customers
                            date=2024-01-31  selected
                            after raw.orders

stage 3
  shop.daily_revenue        21 partitions, date=2024-01-22, region=apac … date=2024-01-28, region=us
                            upstream of shop.weekly_revenue
                            3 partitions, date=2024-01-31, region=apac … date=2024-01-31, region=us
                            selected
                            after raw.customers, shop.clean_orders
  shop.returning_customers  date=2024-01-31  selected
                            after shop.clean_orders

stage 4
  shop.weekly_revenue       week=2024-01-22  selected
                            after shop.daily_revenue
"""
    )


def test_a_small_plan_has_a_line_for_each_task_and_its_reasons() -> None:
    assert (
        re.sub("[0-9a-f]{16}…", "*…", plan("+clean_orders", "-p", "date=2024-01-30..").stdout)
        == """\
4 tasks in 2 stages, planned for 2024-02-01 06:00 UTC
v1:sha256:*…
each: stale because it was never made

stage 1
  raw.orders         date=2024-01-30
                     date=2024-01-31
                     upstream of shop.clean_orders

stage 2
  shop.clean_orders  date=2024-01-30
                     date=2024-01-31
                     selected
                     after raw.orders
"""
    )


def test_an_asset_without_partitions_has_its_reasons_beside_it() -> None:
    shown = plan("raw.customers").stdout.splitlines()
    assert shown[-1] == "  raw.customers  selected; stale because it was never made"


def test_a_selection_of_nothing_is_said_to_be_one() -> None:
    done = plan("tag:nope")
    assert refused(done).startswith("no asset matches the selection 'tag:nope'")


def test_a_selection_of_several_words_needs_no_quotes() -> None:
    assert (
        plan("raw.orders", "or", "raw.customers").stdout
        == plan("raw.orders or raw.customers").stdout
    )


def test_a_file_that_is_no_plan_is_not_overwritten(shop: Path) -> None:
    source = shop / "shop_assets.py"
    before = source.read_text()
    done = run("plan", "--project", str(shop), "--out", str(source))
    assert "is there already and is no plan" in refused(done)
    assert source.read_text() == before


def test_assets_without_partitions_yet_are_named() -> None:
    done = run("plan", "--project", str(SHOP), "--now", "2024-01-01", "raw.orders")
    assert done.stdout.startswith("No tasks, ")
    assert done.stdout.endswith("\nno partitions to make: raw.orders\n")


def test_no_line_of_a_plan_ends_in_spaces() -> None:
    for selection in ("*", "raw.customers", "+returning_customers", "tag:nope"):
        assert not re.search(r" $", plan_here(selection).stdout, re.MULTILINE)


def test_a_partition_cannot_write_to_the_terminal(shop: Path) -> None:
    module = shop / "shop_assets.py"
    module.write_text(module.read_text().replace('"apac"', r'"\x1b[31m\n"'))
    shown = plan("daily_revenue", "-p", "date=2024-01-05", project=shop).stdout.splitlines()
    assert r"date=2024-01-05, region=\x1b[31m\n" in shown[-3]


def test_a_time_with_an_offset_is_shown_in_utc() -> None:
    shown = run("plan", "--project", str(SHOP), "--now", "2024-01-31T23:00-05:00").stdout
    assert "planned for 2024-02-01 04:00 UTC" in shown


def test_a_time_without_an_offset_is_utc_wherever_the_machine_is() -> None:
    arguments = ("plan", "--project", str(SHOP), "--now", "2024-02-01T06:00")
    assert run(*arguments, TZ="Asia/Tokyo").stdout == usual()


def test_the_working_directory_is_the_project_unless_told() -> None:
    assert run("plan", "--now", NOW, cwd=SHOP).stdout == usual()


@pytest.mark.parametrize(
    ("chosen", "dates"),
    [
        (["date=2024-01-05"], ["05"]),
        (["date=2024-01-05..2024-01-07"], ["05", "06", "07"]),
        (["date=2024-01-05,2024-01-09"], ["05", "09"]),
        (["date=2024-01-05", "date=2024-01-09"], ["05", "09"]),
        (["date=2024-01-02,2024-01-05..2024-01-06"], ["02", "05", "06"]),
        (["date=2024-01-30.."], ["30", "31"]),
        (["date=..2024-01-02"], ["01", "02"]),
        (["date=d:2024-01-05"], ["05"]),
    ],
)
def test_partitions_are_chosen_by_key_list_and_range(chosen: list[str], dates: list[str]) -> None:
    options = [word for one in chosen for word in ("-p", one)]
    tasks = json.loads(plan_here("raw.orders", "--json", *options).stdout)["tasks"]
    assert [task["partition"] for task in tasks] == [f"date=d:2024-01-{day}" for day in dates]


def test_partitions_of_several_dimensions_are_combined() -> None:
    done = plan("daily_revenue", "--json", "-p", "date=2024-01-05", "-p", "region=us,eu")
    assert [task["partition"] for task in json.loads(done.stdout)["tasks"]] == [
        "date=d:2024-01-05,region=s:eu",
        "date=d:2024-01-05,region=s:us",
    ]


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("date", "-p 'date' is not of the form DIMENSION=KEY, like date=2024-01-31"),
        ("=x", "-p '=x' is not of the form DIMENSION=KEY"),
        ("date=", "-p 'date=' is not of the form DIMENSION=KEY"),
        ("date=,", "-p 'date=,' names an empty key; write keys between the commas"),
        ("date=soon", "'date' has no key 'soon'; write a time like 2024-01-01"),
        ("date=2024-02-30", "has no key '2024-02-30'"),
        ("date=2023-12-31", "has no key '2023-12-31'"),
        ("date=2024-01-09..2024-01-02", "runs backwards; swap its ends"),
        ("region=moon", "partition dimension 'region' has no key 'moon'; it has eu, us, apac"),
        ("dat=2024-01-01", "dimension 'dat'; did you mean 'date'?"),
    ],
)
def test_a_wrong_partition_is_told_what_would_be_right(wrong: str, said: str) -> None:
    assert said in refused(plan_here("-p", wrong))


@pytest.mark.parametrize(
    ("selection", "said", "caret"),
    [
        ("raw.ordrs", "there is no asset 'raw.ordrs'; did you mean 'raw.orders'?", 0),
        ("tag:tier=gold and raw.ordrs", "there is no asset 'raw.ordrs'", 18),
        ("raw.orders clean_orders", "expected 'and', 'or' or the end before 'clean_orders'", 11),
        ("(raw.orders", "", 0),
        ("raw.orders or", "", 13),
    ],
)
def test_a_wrong_selection_is_shown_with_a_caret(selection: str, said: str, caret: int) -> None:
    message, text, pointer = refused(plan_here(selection)).split("\n")
    assert said in message
    assert (text, pointer) == (f"    {selection}", f"    {' ' * caret}^")


def test_an_empty_selection_is_not_everything() -> None:
    assert "the selection is empty" in refused(plan_here(""))


@pytest.mark.parametrize(
    ("now", "said"),
    [
        ("soon", "--now 'soon' is not a time; write it like 2024-01-31T06:00:00Z"),
        ("", "--now '' is not a time"),
        ("2024-02-30", "--now '2024-02-30' is not a time"),
        ("0001-01-01T00:00:00+14:00", "is outside the years 3 to 9997; choose a time within"),
        ("9999-12-31T23:59:59-14:00", "is outside the years 3 to 9997"),
    ],
)
def test_a_wrong_time_is_told_what_would_be_right(now: str, said: str) -> None:
    assert said in refused(run_here(["plan", "--project", str(SHOP), "--now", now]))


# Files


def test_the_json_on_stdout_is_the_file(tmp_path: Path) -> None:
    done = plan("--json", "--out", str(tmp_path / "plan.json"))
    assert done.stdout == (tmp_path / "plan.json").read_text() + "\n"
    assert len(json.loads(done.stdout)["tasks"]) == 47


def test_a_plan_written_says_so_on_stderr_only(tmp_path: Path) -> None:
    done = plan("raw.customers", "--out", "plan.json", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == "Wrote 1 task to plan.json.\n"


def test_a_plan_compared_with_itself_is_the_same_work(tmp_path: Path) -> None:
    plan("--out", "plan.json", cwd=tmp_path)
    done = plan("--diff", "plan.json", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "The same work as plan.json.\n", "")


def test_a_plan_is_the_same_work_wherever_the_project_stands(shop: Path, tmp_path: Path) -> None:
    plan("--out", "plan.json", cwd=tmp_path)
    assert "The same work" in plan("--diff", "plan.json", project=shop, cwd=tmp_path).stdout


def test_a_plan_compared_with_another_lists_what_differs(shop: Path, tmp_path: Path) -> None:
    plan("-p", "date=2024-01-05", "--out", "plan.json", "raw.orders or raw.customers", cwd=tmp_path)
    module = shop / "shop_assets.py"
    module.write_text(
        module.read_text().replace('"""All customers, as they are now."""', 'print("new")')
    )
    done = plan(
        *("-p", "date=2024-01-06", "--diff", "plan.json", "raw.orders or raw.customers"),
        project=shop,
        cwd=tmp_path,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "+ raw/orders[date=d:2024-01-06]:materialize\n"
        "- raw/orders[date=d:2024-01-05]:materialize\n"
        "~ raw/customers:materialize\n"
        "    its code changed\n"
        "1 added, 1 removed, 1 changed since plan.json.\n"
    )


def test_a_difference_can_be_had_as_json(tmp_path: Path) -> None:
    plan("raw.orders", "-p", "date=2024-01-05", "--out", "plan.json", cwd=tmp_path)
    done = plan("raw.customers", "--json", "--diff", "plan.json", cwd=tmp_path)
    assert json.loads(done.stdout) == {
        "added": ["raw/customers:materialize"],
        "changed": [],
        "removed": ["raw/orders[date=d:2024-01-05]:materialize"],
    }


def test_a_file_is_compared_before_it_is_replaced(tmp_path: Path) -> None:
    plan("raw.orders", "-p", "date=2024-01-05", "--out", "plan.json", cwd=tmp_path)
    done = plan("raw.customers", "--diff", "plan.json", "--out", "plan.json", cwd=tmp_path)
    assert "1 added, 1 removed, 0 changed since plan.json." in done.stdout


def test_a_plan_that_was_changed_by_hand_is_refused(tmp_path: Path) -> None:
    plan("raw.orders", "--out", "plan.json", cwd=tmp_path)
    file = tmp_path / "plan.json"
    file.write_text(file.read_text().replace("date=d:2024-01-31", "date=d:2024-01-30"))
    message = refused(plan("--diff", "plan.json", cwd=tmp_path))
    assert message.startswith("plan.json: ") and "changed after it was written" in message


@pytest.mark.parametrize(
    "content", [b"", b"{}", b"[]", b"null", b"\xff", b'{"format":1', b"[" * 9999]
)
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    message = refused(plan_here("--diff", str(tmp_path / "plan.json")))
    assert message.startswith(f"{tmp_path / 'plan.json'}: ")


def test_a_missing_plan_is_told_how_to_write_one(tmp_path: Path) -> None:
    assert refused(plan("--diff", "gone.json", cwd=tmp_path)) == (
        "the plan 'gone.json' cannot be read: No such file or directory;"
        " write one with 'servo plan --out'"
    )


def test_a_folder_is_no_plan(tmp_path: Path) -> None:
    assert "cannot be read: Is a directory" in refused(plan("--diff", str(tmp_path)))


@pytest.mark.parametrize(
    ("out", "why"),
    [
        (".", "Is a directory"),
        ("", "Is a directory"),
        ("no/such/folder/plan.json", "No such file or directory"),
        ("/proc/plan.json", "No such file or directory"),
        ("/dev/full", "No space left on device"),
    ],
)
def test_a_plan_that_cannot_be_written_says_where_and_why(out: str, why: str) -> None:
    message = refused(plan_here("--out", out))
    assert message == (
        f"the plan cannot be written to {str(Path(out))!r}: {why}; choose another file"
    )


def test_a_plan_in_a_read_only_place_says_so() -> None:
    # Where not even root may write, which the tests may be run by.
    message = refused(plan_here("--out", "/sys/plan.json"))
    assert re.search("Permission denied|Read-only file system|Operation not permitted", message)


# Projects that are wrong


def test_a_folder_without_a_project_is_told_what_to_write(tmp_path: Path) -> None:
    assert f"there is no servo.toml in {tmp_path}" in refused(plan(project=tmp_path))


def test_an_error_in_users_code_is_one_message_with_their_line(shop: Path) -> None:
    (shop / "shop_assets.py").write_text("import os\n\n1 / 0\n")
    assert refused(plan(project=shop)) == (
        f"module 'shop_assets' cannot be imported: {shop / 'shop_assets.py'}:3:"
        " ZeroDivisionError: division by zero"
    )


def test_what_users_code_prints_does_not_mix_with_the_answer(shop: Path) -> None:
    module = shop / "shop_assets.py"
    module.write_text("print('hello')\n" + module.read_text())
    done = plan("--json", project=shop)
    assert (done.returncode, done.stderr) == (0, "hello\n")
    assert json.loads(done.stdout)["tasks"]


def test_mistakes_in_the_command_are_found_before_users_code_runs(shop: Path) -> None:
    (shop / "shop_assets.py").write_text("print('it ran')")
    assert "it ran" not in refused(plan("-p", "date", project=shop))


# Streams


def test_nothing_is_coloured_when_piped(tmp_path: Path) -> None:
    plan("raw.orders", "--out", "plan.json", cwd=tmp_path)
    for done in (plan(), plan("--diff", "plan.json", cwd=tmp_path), plan("tag:nope"), run("-h")):
        assert "\x1b" not in done.stdout + done.stderr


def on_a_terminal(*arguments: str, **env: str) -> str:
    """What a terminal gets to see."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [str(SERVO), *arguments], stdout=theirs, env=environment(**{"TERM": "xterm", **env})
    )
    os.close(theirs)
    seen = b""
    while True:
        try:
            some = os.read(ours, 65536)
        except OSError:  # what Linux says when the other side is closed
            break
        if not some:
            break
        seen += some
    os.close(ours)
    assert process.wait(60) == 0
    return seen.decode().replace("\r\n", "\n")


def test_a_terminal_gets_colours() -> None:
    shown = on_a_terminal(*SHOWN)
    assert "\x1b[36mraw.customers\x1b[0m" in shown
    assert re.sub(r"\x1b\[\d*m", "", shown) == usual()


@pytest.mark.parametrize("env", [{"NO_COLOR": "1"}, {"TERM": "dumb"}], ids=["NO_COLOR", "dumb"])
def test_a_terminal_can_be_left_without_colours(env: Mapping[str, str]) -> None:
    assert on_a_terminal(*SHOWN, **env) == usual()


@pytest.mark.parametrize("columns", ["1", "20", "0", "x"])
def test_any_width_of_terminal_will_do(columns: str) -> None:
    assert plan(COLUMNS=columns).stdout == usual()
    assert run("plan", "--help", COLUMNS=columns).returncode == 0


@pytest.mark.parametrize(
    "env",
    [{"PYTHONIOENCODING": "ascii"}, {"PYTHONIOENCODING": "ascii:strict", "LC_ALL": "C"}],
    ids=["ascii", "strict"],
)
def test_a_terminal_that_knows_only_ascii_gets_ascii(env: Mapping[str, str]) -> None:
    done = run(*SHOWN, **env)  # type: ignore[arg-type]  # of strings, none of which is cwd
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.isascii()
    assert done.stdout == usual().replace("…", "...")


def test_messages_are_ascii_for_a_terminal_that_knows_no_more() -> None:
    message = refused(plan("(((", PYTHONIOENCODING="ascii"))
    assert message.isascii() and "(...)" in message


def test_a_language_of_c_changes_nothing() -> None:
    assert plan(LC_ALL="C", LANG="C").stdout == usual()


def test_json_is_utf8_whatever_the_terminal(shop: Path) -> None:
    toml = shop / "shop_assets.py"
    toml.write_text(toml.read_text().replace('"apac"', '"Ärmel"'))
    arguments = ("daily_revenue", "--json", "-p", "date=2024-01-05", "-p", "region=Ärmel")
    usual = plan(*arguments, project=shop)
    assert usual.returncode == 0 and "Ärmel" in usual.stdout
    assert plan(*arguments, project=shop, PYTHONIOENCODING="ascii").stdout == usual.stdout


def test_arguments_that_are_not_utf8_are_told_apart(tmp_path: Path) -> None:
    said = "the argument 'date=\\udcff' is not UTF-8; type it again"
    assert refused(plan(b"-p", b"date=\xff")) == said
    assert "is not UTF-8" in refused(plan(b"kind:\xff", b"--json"))
    assert "there is no folder" in refused(run(b"plan", b"--project", b"caf\xe9", cwd=tmp_path))
    assert "cannot be read" in refused(plan(b"--diff", b"caf\xe9", cwd=tmp_path))


def test_a_file_name_that_is_not_utf8_works(tmp_path: Path) -> None:
    assert plan(b"--out", b"caf\xe9", cwd=tmp_path).returncode == 0
    done = plan(b"--diff", b"caf\xe9", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "The same work as caf\\udce9.\n")


@pytest.mark.parametrize("arguments", [[], ["--json"], ["-p", "date=.."]], ids=str)
def test_a_reader_that_leaves_early_is_no_problem(arguments: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)  # gone before the first byte
    done = subprocess.run(
        [str(SERVO), *SHOWN, *arguments],
        stdout=writing,
        stderr=subprocess.PIPE,
        env=environment(),
        timeout=60,
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("command", [["--help"], ["plan", "--help"]], ids=" ".join)
def test_a_reader_that_leaves_the_help_early_is_no_problem(command: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run(
        [str(SERVO), *command], stdout=writing, stderr=subprocess.PIPE, env=environment()
    )
    os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("arguments", [[], ["--json"]], ids=str)
def test_a_full_disk_behind_stdout_is_told(arguments: list[str]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [str(SERVO), *SHOWN, *arguments],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
            text=True,
        )
    assert done.returncode == 2
    assert done.stderr == "servo: the output cannot be written: No space left on device\n"


@pytest.mark.parametrize("closed", ["1", "2", "0"])
def test_a_closed_stream_is_no_problem(closed: str) -> None:
    done = subprocess.run(
        ["sh", "-c", f'exec "$@" {closed}>&-', "sh", str(SERVO), *SHOWN],
        capture_output=True,
        env=environment(),
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_while_users_code_is_imported_ends_quietly(shop: Path) -> None:
    text = "import threading\nprint('started', flush=True)\nthreading.Event().wait()\n"
    (shop / "shop_assets.py").write_text(text)
    # Where the tests run in the background, Ctrl-C is ignored, and so it would be by the child.
    listening = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [str(SERVO), "plan", "--project", str(shop)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(),
        )
    finally:
        signal.signal(signal.SIGINT, listening)
    with process:
        assert process.stderr is not None
        try:
            assert select.select([process.stderr], [], [], 60)[0]
            assert process.stderr.readline() == b"started\n"
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert (process.returncode, out, err.strip()) == (130, b"", b"")


def test_the_module_can_be_run_in_place_of_the_script() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "servo", *SHOWN], capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stdout) == (0, usual())
