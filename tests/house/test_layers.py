"""Imports point down (see `layers.py` for the map)."""

from __future__ import annotations

import pytest

from tests.house.layers import (
    MAY_IMPORT,
    climbing_imports,
    import_cycles,
    late_imports,
    unknown_imports,
)
from tests.house.source import FACADE, Module, modules_under, parse

REAL = modules_under()


def house(**texts: str) -> dict[str, Module]:
    """A small house: `core__keys="import os"` is the module `servo.core.keys`."""
    modules = {"servo": parse("servo", texts.pop("facade", ""), is_package=True)}
    for key, text in texts.items():
        name = "servo." + key.replace("__", ".")
        modules[name] = parse(name, text)
    return modules


def test_imports_point_down() -> None:
    assert REAL, "no source found under src/servo"
    assert climbing_imports(REAL) == []


def test_no_modules_import_each_other() -> None:
    assert import_cycles(REAL) == []


def test_servo_is_imported_inside_functions_only_for_start_up() -> None:
    assert late_imports(REAL) == []


def test_every_imported_module_exists() -> None:
    assert unknown_imports(REAL) == []


def test_the_map_itself_has_no_loops() -> None:
    rooms = dict(MAY_IMPORT)
    rooms.pop(FACADE)  # faces may ask it for the version; it names only what is below them
    while rooms:
        ground = [room for room, below in rooms.items() if not (below & rooms.keys())]
        assert ground, f"these rooms may all import each other: {sorted(rooms)}"
        for room in ground:
            del rooms[room]


@pytest.mark.parametrize(
    ("room", "text"),
    [
        ("core__plan", "from servo.runtime import project"),
        ("core__plan", "from servo.sdk.asset import asset"),
        ("core__plan", "import servo.events.envelope as e"),
        ("core__plan", "from servo import asset"),
        ("core__plan", "from ..sdk import asset"),
        ("core__plan", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import servo.sdk"),
        ("core__plan", "def f():\n    from servo.cli import main"),
        ("core__plan", "import importlib\nimportlib.import_module('servo.cli.main')"),
        ("core__plan", "x = __import__('servo.runtime')"),
        ("errors", "from servo.core import keys"),
        ("sdk__asset", "from servo.events import envelope"),
        ("adapters__system", "from servo.ledger import log"),
        ("adapters__system", "from servo.events import envelope"),
        ("runtime__project", "from servo.adapters import system"),
        ("cli__main", "from servo.adapters.system import clock"),
        ("control__ready", "from servo.ledger import log"),
        ("worker__run", "from servo.ledger import log"),
        ("testing__clock", "from servo.adapters.system import clock"),
        ("wiring", "from servo.cli import main"),
        ("attic__box", ""),
    ],
)
def test_an_import_that_climbs_is_found(room: str, text: str) -> None:
    assert len(climbing_imports(house(**{room: text}))) == 1


def test_lazy_names_of_the_facade_are_held_to_the_map() -> None:
    assert climbing_imports(house(facade="_LAZY = {'asset': 'servo.sdk.asset'}")) == []
    assert len(climbing_imports(house(facade="_LAZY = {'x': 'servo.adapters.system'}"))) == 1


def test_imports_that_point_down_are_left_alone() -> None:
    modules = house(
        errors="",
        core__keys="from servo.errors import Invalid",
        sdk__asset="from servo.core import keys\nimport re",
        adapters__system="import time\nfrom servo.ports.clock import Clock",
        ports__clock="from servo.core.keys import AssetKey",
        wiring="from servo.adapters import system",
        cli__main="def main():\n    from servo import wiring",
    )
    assert climbing_imports(modules) == []
    assert late_imports(modules) == []
    assert import_cycles(modules) == []
    assert unknown_imports(modules) == []


def test_a_cycle_is_found_however_it_is_hidden() -> None:
    modules = house(
        core__a="from servo.core import b",
        core__b="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from servo.core.c import C",
        core__c="def f():\n    import servo.core.a",
        core__d="from servo.core import a",
    )
    assert import_cycles(modules) == [
        "these modules import each other: servo.core.a, servo.core.b, servo.core.c"
    ]


def test_a_package_that_gathers_its_modules_and_is_imported_by_them_is_a_cycle() -> None:
    modules = house(core__keys="from servo.core import PartitionKey")
    modules["servo.core"] = parse("servo.core", "from servo.core.keys import Key", is_package=True)
    assert len(import_cycles(modules)) == 1


def test_a_late_import_of_servo_is_found_outside_the_faces() -> None:
    text = "def f():\n    from servo.core import keys"
    assert len(late_imports(house(core__keys="", core__plan=text))) == 1
    assert late_imports(house(core__keys="", cli__main=text)) == []


def test_an_import_of_a_module_that_does_not_exist_is_found() -> None:
    assert len(unknown_imports(house(cli__main="def f():\n    import servo.runtime.engine"))) == 1
