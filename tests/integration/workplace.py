"""Projects whose assets wait for a test, and `servo` processes that a test can stop at any moment.

An asset that waits reads a pipe until the test has closed it: nothing sleeps, and nothing is guessed.
"""

import os
import select
import subprocess
from contextlib import suppress
from pathlib import Path

from tests.integration.command import SERVO, Done, environment, run

PATIENCE = 60
"""Seconds after which something that should happen is said not to."""

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
        """Until an asset waits; its name. One that never will is not waited for for ever."""
        # Whoever opens the pipe to read without waiting lets a writer in; the poll is the waiting.
        reading = os.open(self.folder / "began", os.O_RDONLY | os.O_NONBLOCK)
        try:
            ready, _, _ = select.select([reading], [], [], PATIENCE)
            assert ready, "no asset has begun to wait"
            os.set_blocking(reading, True)
            name = b""
            while some := os.read(reading, 4096):
                name += some
            return name.decode()
        finally:
            os.close(reading)

    def open_gate(self) -> None:
        """Let the assets that wait go on."""
        (self.folder / "gate").write_text("go")


def end(process: "subprocess.Popen[str]") -> Done:
    out, err = process.communicate(timeout=60)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def killed(place: Workplace, *arguments: str) -> None:
    """A run whose process is gone, with an attempt at work."""
    process = place.start("run", *arguments)
    place.await_start()
    process.kill()
    end(process)


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
