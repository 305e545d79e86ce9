"""The facade exports exactly its names. Adding one here is a decision; so is taking one away."""

from __future__ import annotations

import subprocess
import sys
import tomllib

import pytest

import servo
from tests.house.source import ROOT

EXPORTED = ("asset", "AssetKey", "PartitionKey", "ServoError", "__version__")


def test_the_facade_exports_exactly_its_names() -> None:
    assert isinstance(servo.__all__, tuple)
    assert sorted(servo.__all__) == sorted(EXPORTED)


@pytest.mark.parametrize("name", EXPORTED)
def test_every_exported_name_resolves(name: str) -> None:
    assert getattr(servo, name) is not None


def test_dir_shows_the_exported_names_before_any_is_loaded() -> None:
    # In a process of its own: here the names are loaded already.
    listed = subprocess.run(
        [sys.executable, "-c", "import servo; print(*dir(servo))"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    assert set(EXPORTED) <= set(listed)


def test_dir_offers_no_other_public_name() -> None:
    # Modules of servo appear as attributes once something has imported them; nothing else may.
    modules = {name.split(".")[1] for name in sys.modules if name.startswith("servo.")}
    public = {name for name in dir(servo) if not name.startswith("_")}
    assert public - set(EXPORTED) - modules == set()


def test_an_unknown_name_is_an_attribute_error() -> None:
    unknown = "no_such_name"
    with pytest.raises(AttributeError, match=unknown):
        getattr(servo, unknown)


def test_the_version_is_the_one_in_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert servo.__version__ == project["version"]
