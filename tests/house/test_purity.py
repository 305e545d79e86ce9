"""Clocks, randomness, ids and environment variables are touched only in their one place."""

from __future__ import annotations

import pytest

from tests.house.purity import SYSTEM, io_uses, sleeps, world_uses
from tests.house.source import ROOT, Module, modules_under, parse

REAL = modules_under()
TESTS = [
    parse(path.stem, path.read_text(), path=str(path.relative_to(ROOT)))
    for path in sorted((ROOT / "tests").rglob("*.py"))
]


def core(text: str) -> Module:
    return parse("servo.core.sample", text)


def test_the_world_is_touched_only_in_its_one_place() -> None:
    assert REAL, "no source found under src/servo"
    assert [problem for module in REAL.values() for problem in world_uses(module)] == []


def test_the_pure_rooms_do_no_input_or_output() -> None:
    assert [problem for module in REAL.values() for problem in io_uses(module)] == []


def test_no_test_sleeps_on_the_real_clock() -> None:
    assert [problem for module in TESTS for problem in sleeps(module)] == []


@pytest.mark.parametrize(
    "text",
    [
        "import time",
        "import time as t\nt.monotonic()",
        "from time import perf_counter as p",
        "from time import *",
        "import random",
        "from random import Random",
        "import secrets",
        "from uuid import uuid4",
        "from servo.core.ids import UlidSource",
        "from servo.core import ids\nids.make_ulid(0, 0)",
        "from os import urandom",
        "import os\nos.urandom(8)",
        "import os as o\no.environ['X']",
        "from os import environ",
        "from os import getenv as g",
        "import os\nos.path.expanduser('~')",
        "import datetime\ndatetime.datetime.now(datetime.UTC)",
        "import datetime as d\nd.date.today()",
        "from datetime import datetime\ndatetime.utcnow()",
        "from datetime import datetime as dt\nnow = dt.now",
        "from datetime import datetime\nMoment = datetime\nMoment.now()",
        "import datetime\nM = datetime\nD = M.datetime\nx = D.today()",
        "from datetime import date\ndef f(today=date.today): ...",
        "def f():\n    import time\n    return time.time()",
        "import importlib\nimportlib.import_module('random').random()",
        "from importlib import import_module\nr = import_module('secrets')",
        "__import__('time').time()",
        "import os\ngetattr(os, 'environ')",
        "def f(t):\n    return t.astimezone()",
        "class C:\n    import uuid",
    ],
)
def test_a_use_of_the_world_is_found_however_it_is_spelled(text: str) -> None:
    assert world_uses(core(text))
    assert world_uses(parse("servo.runtime.sample", text))
    assert world_uses(parse("servo.adapters.other", text))
    assert world_uses(parse(SYSTEM, text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "from datetime import UTC, date, datetime, timedelta\ndatetime(2025, 1, 1, tzinfo=UTC)",
        "def f(clock):\n    return clock.now()",
        "def f(now, random_bits):\n    return now() + random_bits(80)",
        "def f(moment, zone):\n    return moment.astimezone(zone)",
        "import os\nos.path.join('a', 'b')",
        "from servo.core import time_windows",
        "timeout = 3\ntime_of_day = 'noon'",
    ],
)
def test_values_that_are_handed_in_are_left_alone(text: str) -> None:
    assert world_uses(parse("servo.runtime.sample", text)) == []


@pytest.mark.parametrize(
    "text",
    [
        "import os",
        "import os.path",
        "from pathlib import Path",
        "import io",
        "import socket as s",
        "from subprocess import run",
        "import asyncio",
        "import logging",
        "import concurrent.futures",
        "from urllib import request",
        "from urllib.request import urlopen",
        "open('x')",
        "read = open",
        "import builtins\nbuiltins.open('x')",
        "from builtins import open as o\no('x')",
        "print('x')",
        "import sys\nsys.stdout.write('x')",
        "def f(name):\n    __import__(name)",
        "import importlib\ndef f(name):\n    importlib.import_module(name)",
        "eval('1')",
    ],
)
def test_input_and_output_is_found_in_the_pure_rooms_only(text: str) -> None:
    for room in ("core", "events", "fold"):
        assert io_uses(parse(f"servo.{room}.sample", text))
    assert io_uses(parse("servo.runtime.sample", text)) == []


def test_only_the_zones_read_the_time_zone_package() -> None:
    assert io_uses(parse("servo.core.zones", "import pkgutil")) == []
    assert io_uses(parse("servo.core.zones", "import os"))
    assert io_uses(core("import pkgutil"))


def test_a_method_called_open_is_not_the_builtin() -> None:
    assert io_uses(core("def f(door):\n    door.open()\n\nfrom urllib.parse import quote")) == []


@pytest.mark.parametrize(
    "text",
    [
        "import time\ntime.sleep(1)",
        "from time import sleep\nsleep(1)",
        "import time as t\nwait = t.sleep\nwait(1)",
    ],
)
def test_a_sleeping_test_is_found(text: str) -> None:
    assert sleeps(core(text))


def test_measuring_time_in_a_test_is_not_sleeping() -> None:
    assert sleeps(core("import time\ntime.perf_counter()")) == []
