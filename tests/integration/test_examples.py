"""The examples are real projects: they load, they plan, and a type checker likes them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from servo.core.definitions import dump, load
from servo.wiring import load_project
from tests.house.source import ROOT
from tests.integration.command import NOW, run, run_here

CACHE = str(ROOT / ".mypy_cache" / "examples")
EXAMPLES = sorted(path.parent for path in (ROOT / "examples").glob("*/servo.toml"))


def test_there_are_examples() -> None:
    assert "shop" in [example.name for example in EXAMPLES]


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_plans_today_and_then(example: Path) -> None:
    for options in ([], ["--now", NOW]):
        done = run("plan", "--project", str(example), *options)
        assert (done.returncode, done.stderr) == (0, "")
        assert re.match(r"[1-9][\d,]* tasks? in [1-9]\d* stages?, planned for ", done.stdout)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_no_input_of_an_example_is_missing(example: Path) -> None:
    done = run_here(["plan", "--project", str(example), "--now", NOW])
    assert "will be missing" not in done.stdout


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_the_manifest_of_an_example_can_be_kept(example: Path) -> None:
    manifest = load_project(example).manifest
    assert load(dump(manifest)) == manifest


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_every_asset_of_an_example_says_what_it_is(example: Path) -> None:
    assert all(asset.description for asset in load_project(example).manifest.assets)


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.name)
def test_an_example_has_strict_types(example: Path) -> None:
    # As a user would check their own project, against the installed package and its py.typed.
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", "--config-file=", "--cache-dir", CACHE, "."],
        cwd=example,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout
