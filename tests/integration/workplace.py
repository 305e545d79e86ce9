"""Projects whose assets wait for a test, and `servo` processes that a test can stop at any moment.

An asset that waits reads a pipe until the test has closed it: nothing sleeps, and nothing is guessed.
"""

import os
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.integration.command import SERVO, Done, environment, run

HEAD = """\
from pathlib import Path
from servo import asset

HERE = Path(__file__).parent


def wait(name):
    (HERE / f"{name}.log").open("a").write("began\\n")
    with open(HERE / "began", "w") as began:
        began.write(name)
    with open(HERE / "gate") as gate:
        gate.read()


"""


class Workplace:
    def __init__(self, folder: Path, assets: str, name: str = "work") -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        (folder / "servo.toml").write_text(f'modules = ["{name}"]\n')
        self.write(assets, name)
        for pipe in ("gate", "began"):
            with suppress(FileExistsError):
                os.mkfifo(folder / pipe)

    def write(self, assets: str, name: str = "work") -> None:
        (self.folder / f"{name}.py").write_text(HEAD + assets)

    def servo(self, *arguments: str) -> Done:
        return run(*arguments, cwd=self.folder)

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        return subprocess.Popen(
            [str(SERVO), *arguments],
            cwd=self.folder,
            env=environment(PYTHONDONTWRITEBYTECODE="1"),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def await_start(self) -> str:
        """Until an asset waits; its name."""
        return (self.folder / "began").read_text()

    def open_gate(self) -> None:
        """Let the assets that wait go on."""
        (self.folder / "gate").write_text("go")


def end(process: "subprocess.Popen[str]") -> Done:
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


GOOD = """\
@asset
def orders(): ...


@asset(deps=[orders])
async def revenue(): ...
"""

WAITS = """\
@asset
def orders():
    wait("orders")


@asset(deps=[orders])
def revenue(): ...
"""

FAILS = """\
@asset
def orders():
    raise ValueError("row 17 is not a number")


@asset(deps=[orders])
def revenue(): ...


@asset
def customers(): ...
"""
