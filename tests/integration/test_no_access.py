"""State that may not be read or written: the message names it and says what to do about it.

Root may read everything, so the disk is told to refuse.
"""

import errno
import os
from pathlib import Path
from typing import NoReturn

import pytest

from servo.adapters.disk import LocalDisk
from tests.integration.command import Done, run_here
from tests.integration.workplace import GOOD, Workplace

DENIED = os.strerror(errno.EACCES)


@pytest.fixture
def place(tmp_path: Path) -> Workplace:
    place = Workplace(tmp_path, GOOD)
    assert place.servo("run", "-q").returncode == 0
    return place


def refuse(monkeypatch: pytest.MonkeyPatch, of: type, *names: str) -> None:
    """As a folder that belongs to somebody else would."""

    def denied(self: object, path: object = None, *_: object, **__: object) -> NoReturn:
        raise PermissionError(errno.EACCES, DENIED, str(self if path is None else path))

    for name in names:
        monkeypatch.setattr(of, name, denied)


def check(done: Done, place: Workplace, code: int) -> str:
    assert (done.returncode, done.stdout) == (code, "")
    told = done.stderr.splitlines()[-1]
    assert told.startswith("servo: ") and f"{place.folder}/.servo" in told
    assert told.endswith(f": {DENIED}; give yourself access to it")
    assert "try again" not in done.stderr and "output" not in done.stderr
    assert "Traceback" not in done.stderr and "Errno" not in done.stderr
    return told


@pytest.mark.parametrize(
    "command", [["status"], ["sql", "select 1"], ["ledger", "verify"], ["ledger", "tail"]]
)
def test_a_file_that_may_not_be_read_is_named(
    command: list[str], place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, LocalDisk, "open", "names")
    done = run_here([*command, "--project", str(place.folder)])
    assert check(done, place, 1).startswith("servo: could not ")


@pytest.mark.parametrize("command", [["run"], ["cancel", "01"]])
def test_a_file_that_may_not_be_written_is_named(
    command: list[str], place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    refuse(monkeypatch, LocalDisk, "open", "lock")
    done = run_here([*command, "--project", str(place.folder)])
    assert check(done, place, 1).startswith("servo: could not ")


@pytest.mark.parametrize("command", [["run"], ["status"], ["cancel", "01"], ["ledger", "tail"]])
def test_a_folder_that_may_not_be_entered_is_named(
    command: list[str], place: Workplace, monkeypatch: pytest.MonkeyPatch
) -> None:
    exists = Path.exists

    def denied(path: Path) -> bool:
        if path.name == ".servo":
            raise PermissionError(errno.EACCES, DENIED, str(path))
        return exists(path)

    monkeypatch.setattr(Path, "exists", denied)
    done = run_here([*command, "--project", str(place.folder)])
    check(done, place, 2)
