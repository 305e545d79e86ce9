"""Starting processes that die, and telling how."""

import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import IO, NamedTuple, Self

import msgspec
import pytest

from servo.testing.chance import Chance
from servo.testing.crashes import CALL, POINTS
from tests.crash.aftermath import Found, Outcome, examine, lines
from tests.crash.child import PATIENCE, Life
from tests.house.source import ROOT

_COMMAND = [sys.executable, "-m", "tests.crash.child"]
ENDED, KILLED = 0, -signal.SIGKILL


class Nursery:
    """Brings lives into the world, each in a process of its own."""

    def __enter__(self) -> Self:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(_COMMAND, stdin=pipe, stdout=pipe, cwd=ROOT, text=True)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()

    def live(self, life: Life) -> int:
        """How it ended: 0, or the signal that killed it, negative."""
        [status] = self.live_together([life])
        return status

    def live_together(self, lives: Sequence[Life]) -> list[int]:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(msgspec.json.encode(lives).decode() + "\n")
        self._process.stdin.flush()
        return msgspec.json.decode(self._process.stdout.readline(), type=list[int])

    def end(self, folder: Path, name: str = "last") -> Found:
        """Live once more, to the end, and examine what is left."""
        status = self.live(Life(folder=str(folder), name=name))
        assert status == ENDED, f"it ended with {status}\n" + "\n".join(lines(folder, "stderr"))
        return examine(folder)


class Calm(NamedTuple):
    """What a life comes to that nobody killed."""

    outcome: Outcome
    reached: Counter[str]


def calm(nursery: Nursery, folder: Path) -> Calm:
    return Calm(nursery.end(folder).outcome, Counter(lines(folder, "reached")))


@contextmanager
def a_folder() -> Iterator[Path]:
    """In memory where there is such a place: a process that is killed takes nothing along that it
    told the operating system, so a disk would only be slower."""
    shared = "/dev/shm"
    folder = tempfile.mkdtemp(prefix="crash-", dir=shared if os.access(shared, os.W_OK) else None)
    yield Path(folder)
    shutil.rmtree(folder)  # not after an error: it is worth a look


def random_lives(seed: int, folder: Path, usual: Calm) -> list[list[Life]]:
    """Up to three times one life or two at once, each with its death: before some call of the disk,
    at some point, or after some time."""
    chance = Chance(seed)
    return [
        [_random_life(f"{time}{name}", chance, folder, usual) for name in _names(chance)]
        for time in range(1 + chance.below(3))
    ]


def _names(chance: Chance) -> str:
    return "ab" if chance.chance(0.4) else "a"


def _random_life(name: str, chance: Chance, folder: Path, usual: Calm) -> Life:
    at, nth, seconds = None, 1, None
    match chance.below(3):
        case 0:
            at, nth = CALL, 1 + chance.below(usual.reached[CALL])
        case 1:
            at = chance.choose([point.name for point in POINTS])
            nth = 1 + chance.below(max(usual.reached[at], 1))
        case _:
            seconds = chance.delay(1_000, 150_000)
    return Life(folder=str(folder), name=name, at=at, nth=nth, killed_after=seconds)


# --- Two at once ----------------------------------------------------------------------------------


class Process:
    """A process that was started as anybody would start it, and says what it does."""

    def __init__(self, life: Life) -> None:
        self.life = life
        self.said: list[str] = []
        self._process = subprocess.Popen(
            [*_COMMAND, msgspec.json.encode(life).decode()],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )
        # Whoever waits for a word that never comes is told, instead of waiting for ever.
        self._hangs = threading.Timer(PATIENCE, self._process.kill)
        self._hangs.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()
        self._hangs.cancel()

    def hear(self, what: str, times: int = 1) -> None:
        """Wait until it has said something so many times more."""
        out: IO[str] | None = self._process.stdout
        assert out is not None
        while times:
            line = out.readline()
            assert line, f"it ended without saying {what!r}: {self.said} {self._complaint()}"
            self.said.append(line.strip())
            times -= self.said[-1] == what

    def signal(self, number: int) -> None:
        self._process.send_signal(number)

    def kill(self) -> int:
        self._process.kill()
        return self.wait()[0]

    def wait(self) -> tuple[int, str]:
        """Its exit status and what it complained about."""
        out, complaint = self._process.communicate()
        self.said += out.split("\n")
        return self._process.returncode, complaint

    def _complaint(self) -> str:
        self._process.kill()
        return self.wait()[1]


class Hold:
    """While it is kept, tasks that are held wait."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._file = path.open("w")
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.release()

    def release(self) -> None:
        self._file.close()


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[None]:
    """A file system of its own, of so many bytes; skips the test where nobody may make one."""
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
