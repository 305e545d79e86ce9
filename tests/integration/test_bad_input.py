"""Thousands of wrong command lines, projects and plans: a message each, and never a traceback.

Seeded, not random: what fails here fails again. `run_here` lets every error through that the command
line does not turn into a message, so a traceback is a failing test.
"""

import os
import random
import string
from pathlib import Path

import pytest

from servo.core import plan as plans
from tests.integration.command import NOW, SHOP, Done, run_here

LETTERS = string.printable + "äß…→×ø日本🎈\u202e\u0301\u2028"
TEXTS = (
    *(
        "",
        " ",
        "*",
        "+",
        "-",
        "--",
        "---",
        ".",
        "..",
        "/",
        "=",
        ",",
        "'",
        '"',
        "(",
        ")",
        "!",
        "\\",
        "%",
    ),
    *(
        "\n",
        "\t",
        "\x1b[31m",
        "\x7f",
        "é",
        "日本",
        "🎈",
        "\udcff",
        "null",
        "None",
        "True",
        "0",
        "-1",
    ),
    *(
        "1e999",
        "nan",
        "9" * 40,
        "a" * 2000,
        "((((",
        "not",
        "and or",
        "~",
        "$HOME",
        "@",
        "{}",
        "[]",
        "%s",
    ),
)
SELECTIONS = (
    *(
        "*",
        "raw.orders",
        "+weekly_revenue",
        "2+daily_revenue+1",
        "tag:tier=gold",
        "owner:*",
        "kind:sql",
    ),
    *(
        "not raw.orders",
        "raw.* or shop.*",
        "group:x",
        "namespace:raw",
        "raw.ordrs",
        "Raw.Orders",
        "++a",
    ),
    *("raw.orders,raw.customers", "raw.orders raw.customers", "99999999999999999999+raw.orders"),
    *(
        "(raw.orders",
        "tag:",
        "tag:=",
        'tag:"',
        '"raw.orders"',
        "raw.orders+x",
        "not not not raw.orders",
    ),
)
PARTITIONS = (
    *(
        "date=2024-01-05",
        "date=2024-01-05..2024-01-09",
        "date=..",
        "date=2024-01-31..",
        "region=eu,us",
    ),
    *(
        "region=eu..apac",
        "week=2024-01-08",
        "date",
        "=",
        "date=",
        "date=,",
        "date=x",
        "Date=2024-01-05",
    ),
    *(
        "date=2024-02-30",
        "date=0000-00-00",
        "date=9999-12-31",
        "date=2024-01-09..2024-01-05",
        "date=....",
    ),
    *(
        "date=a..b..c",
        "region=",
        "region=s:eu",
        "region=i:1",
        "region=s:%GG",
        "date=d:2024-1-5",
        "self=1",
    ),
    *(
        "date=t:2024-01-05T00:00:00.000000Z",
        "date=d:",
        "date==2024-01-05",
        "week=2024-01-09",
        "x=1",
    ),
    *("date=2024-01-05T00:00", "date=2024-01-05+00:00", "date=20240105", "date=١٢٣", "choices=1"),
)
TIMES = (
    *(
        "2024-02-01",
        NOW,
        "2024-02-01T06:00+14:00",
        "0001-01-01",
        "9999-12-31",
        "0003-01-01",
        "9997-12-31",
    ),
    *(
        "2024-02-30",
        "now",
        "2024-W05",
        "20240201T060000",
        "2024-02-01T24:00",
        "2024-02-01T06:00:00.1234567Z",
    ),
    *(
        "2024-02-01T06:00:00+99:99",
        "1706767200",
        "-2024-01-01",
        "2024-02-01T06:00:60Z",
        "2500-07-01",
    ),
)


def noise(rng: random.Random) -> str:
    """Some text that an operating system can hand over: no null bytes."""
    if rng.random() < 0.4:
        return rng.choice(TEXTS)
    if rng.random() < 0.3:
        return os.fsdecode(bytes(rng.randrange(1, 256) for _ in range(rng.randrange(12))))
    return "".join(rng.choice(LETTERS) for _ in range(rng.randrange(12)))


def bent(text: str, rng: random.Random) -> str:
    """The text, often with something wrong in one place."""
    if rng.random() < 0.5:
        return text
    at = rng.randrange(len(text) + 1)
    return rng.choice([text[:at] + noise(rng) + text[at:], text[:at], text[at:], text.upper()])


def command_line(rng: random.Random, folder: Path) -> list[str]:
    words = [rng.choice(["plan"] * 12 + ["pln", "Plan", "help", "--help", "-V", "", noise(rng)])]
    options = {
        "-p": lambda: bent(rng.choice(PARTITIONS), rng),
        "--partition": lambda: noise(rng),
        "--now": lambda: bent(rng.choice(TIMES), rng),
        "--out": lambda: rng.choice(
            [str(folder / "out.json"), str(folder), str(folder / "a" / "b")]
        ),
        "--diff": lambda: rng.choice(
            [str(folder / "plan.json"), str(folder / "no"), str(folder), ""]
        ),
        "--project": lambda: rng.choice([str(SHOP / "servo.toml"), str(folder), "/nowhere", "~"]),
    }
    if rng.random() < 0.6:
        words.append(bent(rng.choice(SELECTIONS), rng) if rng.random() < 0.8 else noise(rng))
    for _ in range(rng.randrange(4)):
        option = rng.choice([*options, "-p", "-p", "--now"])
        words += [option, options[option]()] if rng.random() < 0.95 else [option]
    words += rng.sample(
        ["--json", "--force", "--jsn", "-x", "--", noise(rng)], rng.choice([0, 0, 0, 1, 2])
    )
    # Most with the example as their project and a fixed time; Click takes the last of each.
    return words[:1] + ["--project", str(SHOP), "--now", NOW] + words[1:]


def check(done: Done) -> None:
    assert done.returncode in (0, 2), done
    assert "Traceback" not in done.stderr
    if done.returncode == 2:
        assert done.stdout == ""
        assert done.stderr.startswith("servo: ") or done.stderr.startswith("Usage: servo")
        assert done.stderr.count("servo: ") <= 1 + " ".join(done.args).count("servo: ")
        first = done.stderr.removeprefix("servo: ").splitlines()[0]
        assert len(first) > 10, done
    else:
        assert done.stdout or done.stderr.startswith("Wrote "), done


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is written by a wild command lands in a folder of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.mark.parametrize("seed", range(8))
def test_a_wrong_command_line_gives_a_message(seed: int, tmp_path: Path) -> None:
    run_here(["plan", "--project", str(SHOP), "--now", NOW, "--out", str(tmp_path / "plan.json")])
    rng = random.Random(seed)
    refused = 0
    for _ in range(250):
        line = command_line(rng, tmp_path)
        try:
            done = run_here(line)
            check(done)
        except BaseException as error:
            error.add_note(f"servo {line!r}")
            raise
        refused += done.returncode == 2
    assert 60 < refused < 250  # it is bad input that is tried, and not only


KEYS = ("modules", "namespace", "module", "name", "Modules", "", "servo.modules", "a.b", '"x y"')
VALUES = (
    *(
        "['assets']",
        "'assets'",
        "['gone']",
        "[]",
        "['']",
        "[1]",
        "['assets', 3]",
        "[['assets']]",
        "3",
    ),
    *(
        "true",
        "nan",
        "1979-05-27",
        "{}",
        "{a = 1}",
        "'shop'",
        "'Shop'",
        "''",
        "['assets.py']",
        "'''a\nb'''",
    ),
    *(
        "['.assets']",
        "['assets', 'assets']",
        "['sys']",
        "['a b']",
        "[' assets']",
        "0x1F",
        "'\\u0041'",
        "1_0",
    ),
    *(
        '"\\uD800"',
        "[",
        "'",
        "=",
        "",
        "-",
        "['os.path']",
        "['assets.x']",
        "['json.decoder', 'assets']",
    ),
)


def toml(rng: random.Random) -> bytes:
    lines = [f"{rng.choice(KEYS)} = {rng.choice(VALUES)}" for _ in range(rng.randrange(3))]
    if rng.random() < 0.7:
        lines.insert(0, f"modules = {rng.choice(VALUES)}")
    if rng.random() < 0.2:
        lines.insert(rng.randrange(len(lines) + 1), f"[{noise(rng)}]")
    text = bytearray("\n".join(lines).encode("utf-8", "surrogateescape"))
    if rng.random() < 0.3 and text:
        text[rng.randrange(len(text))] = rng.randrange(256)
    return bytes(text)


@pytest.mark.parametrize("seed", range(4))
def test_a_wrong_servo_toml_gives_a_message(seed: int, tmp_path: Path) -> None:
    (tmp_path / "assets.py").write_text("from servo import asset\n@asset\ndef a(): ...\n")
    rng = random.Random(seed)
    refused = 0
    for _ in range(300):
        content = toml(rng)
        (tmp_path / "servo.toml").write_bytes(content)
        try:
            done = run_here(["plan"])
            check(done)
        except BaseException as error:
            error.add_note(f"servo.toml: {content!r}")
            raise
        refused += done.returncode == 2
    assert 150 < refused < 300


@pytest.mark.parametrize("seed", range(2))
def test_a_damaged_plan_gives_a_message_or_is_the_same_plan(seed: int, tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    arguments = ["plan", "--project", str(SHOP), "--now", NOW, "+clean_orders"]
    run_here([*arguments, "--out", str(file)])
    whole = file.read_bytes()
    rng = random.Random(seed)
    for _ in range(150):
        damaged = bytearray(whole)
        at = rng.randrange(len(damaged))
        if rng.random() < 0.5:
            damaged[at] = rng.randrange(256)
        elif rng.random() < 0.5:
            del damaged[at:]
        else:
            damaged[at:at] = rng.choice([b"null", b"[[", b"}", b'"', b"1", b",", b"-", b"\xff"])
        file.write_bytes(damaged)
        try:
            done = run_here([*arguments, "--diff", str(file)])
            check(done)
            if done.returncode == 0:
                # Only what explains a plan can change without anybody noticing, not what it does.
                kept = plans.load(bytes(damaged))
                assert kept.fingerprint == plans.load(whole).fingerprint
        except BaseException as error:
            error.add_note(f"plan: {bytes(damaged)!r}")
            raise
