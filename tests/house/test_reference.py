"""The reference pages that are made from the code say what the code says."""

from __future__ import annotations

from pathlib import Path

import pytest

import servo
import servo.types
from servo.core.failures import FailureCode
from servo.core.states import TransitionReason
from tests.house.source import ROOT
from tools.make_reference import FOLDER, PAGES, main


def test_the_reference_is_up_to_date(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--check"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("name", PAGES)
def test_a_page_that_is_out_of_date_is_named(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([], tmp_path) == 0
    assert main(["--check"], tmp_path) == 0
    page = tmp_path / FOLDER / name
    page.write_text(page.read_text().replace("a", "e", 1))
    capsys.readouterr()
    assert main(["--check"], tmp_path) == 1
    assert capsys.readouterr().out.startswith(f"{FOLDER / name} is out of date")


def test_checking_changes_nothing(tmp_path: Path) -> None:
    assert main(["--check"], tmp_path) == 1
    assert list(tmp_path.iterdir()) == []


def test_every_public_name_has_an_entry() -> None:
    page = (ROOT / FOLDER / "sdk.md").read_text()
    for name in (*servo.__all__, *servo.types.__all__):
        assert f"# `{name}`\n" in page


def test_every_reason_and_code_has_a_row() -> None:
    page = (ROOT / FOLDER / "states.md").read_text()
    for each in (*TransitionReason, *FailureCode):
        assert f"| `{each}` |" in page
