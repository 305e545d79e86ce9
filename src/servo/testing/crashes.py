"""Crash points: where a process can die between two writes, each with its name, in one list.

    point     a moment in the order of writes: what is on the disk then, and what was not done yet
    reach     come to a point; each time is written down, so that a point nobody comes to is noticed
    watch     counts how often each point was reached, and kills the process at the chosen time

A `CrashingDisk` is a disk (`servo.ports.disk`) that recognises points from the calls it gets: from
paths, from the bytes that are written, and from the order of both. The code under test knows
nothing of it. `kill -9` leaves what the operating system was told, so what is tried here is the order
of writes; what a power cut leaves of them is tried by `servo.testing.storage.Machine`.

Held by tests/crash/test_crash_matrix.py, which kills real processes at each point of `POINTS`;
docs/explanation/durability.md shows the same list.
"""

import os
import re
import signal
import threading
from collections.abc import Callable
from typing import NamedTuple

from servo.ports.disk import Disk, File


class Point(NamedTuple):
    name: str
    there: str
    """What is on the disk when the process dies."""
    then: str
    """What the next process makes of it."""
    after: str | None = None
    """The point at which the process before must have died; None: it is reached by itself."""
    beside: bool = False
    """Whether it is reached by a process that follows while another one leads."""


_AGAIN = "nothing happened; whoever asked asks again"
_RAN = "its process is gone, so the attempt is given up as interrupted, and there is another"
_GARBAGE = "files that nobody names; they are published again under other names"

POINTS = (
    # --- Who leads
    Point("lead.locked", "the leader's lock is taken, nothing is claimed", "the lock went with it"),
    Point("claim.before", "the claim is about to be written", "claims the same epoch"),
    Point("claim.after", "the claim is durable, its writer is gone", "claims the next epoch"),
    Point("leave.before", "all is published, the lock is still held", "the lock went with it"),
    # --- The log, call by call
    Point("log.locked", "the log's lock is taken, nothing is written", "the lock went with it"),
    Point("log.file.marked", "a new file is announced, not created", "announces it again"),
    Point("log.file.created", "a new file, empty; its name is not durable", "uses it as it is"),
    Point("log.file.named", "a new file, empty, with a durable name", "uses it as it is"),
    Point("log.append.before", "nothing of the segment", _AGAIN),
    Point("log.append.torn", "half of the segment", "cuts it off; nobody was told of it"),
    Point(
        "log.append.unsynced", "the whole segment, not synced", "it counts; nobody was told of it"
    ),
    Point("log.append.after", "the segment, durable", "it counts; nobody was told of it"),
    Point("log.tail.cut", "a torn end was cut, not synced", "looks again", "log.append.torn"),
    Point("log.tail.synced", "a torn end is gone, durably", "appends", "log.append.torn"),
    # --- What is in a segment
    Point("deployment.durable", "a deployment, its author was not told", "it is known already"),
    Point("run.before", "a run's plan, and no run", _AGAIN),
    Point("run.durable", "a run, its author was not told", "the same run key is the same run"),
    Point("dispatch.durable", "an attempt was asked for, not begun", _RAN),
    Point("result.before", "the attempt has run, and no trace of its result", _RAN),
    Point("result.durable", "a result, its worker was not told", "goes on behind it"),
    Point("failure.durable", "a failure that calls for a retry", "waits out the rest, and retries"),
    Point("version.durable", "a version and its task's result", "goes on behind it"),
    Point("audit.durable", "a recorded action, its author was not told", "it is there, once"),
    Point(
        "interruption.durable",
        "the attempts of a dead process are given up",
        "goes on behind it",
        "dispatch.durable",
    ),
    Point("report.before", "a follower's request, not written", _AGAIN, beside=True),
    Point(
        "report.durable",
        "a follower's request, its author was not told",
        "the leader has it; the same run key is the same run",
        beside=True,
    ),
    # --- Objects, call by call
    Point("object.begun", "an empty file in `.tmp/`", "nobody reads it"),
    Point("object.torn", "half of an object in `.tmp/`", "nobody reads it"),
    Point("object.unsynced", "a whole object in `.tmp/`, not synced", "nobody reads it"),
    Point("object.written", "a whole object in `.tmp/`, durable", "nobody reads it"),
    Point("object.linked", "the object has its name, which is not durable", "finds it"),
    Point("object.named", "the object, durable; its other name is left", "finds it"),
    # --- Objects, by what they are
    Point("deployment.stored", "definitions, and no deployment", "finds them, and deploys"),
    Point("plan.stored", "a plan, and no run", "finds it, and asks for the run"),
    Point("publish.file", "some of a revision's files", _GARBAGE),
    Point("publish.merge.file", "a merged file that no list names", _GARBAGE),
    Point("publish.merge.list", "a list of merged files that no manifest names", _GARBAGE),
    Point("publish.files", "all files of a revision, nothing of its manifest", _GARBAGE),
    Point("publish.manifest.before", "the manifest in `.tmp/`, without its name", _GARBAGE),
    Point("publish.manifest.linked", "the manifest, its name is not durable", "goes on from it"),
    Point("publish.manifest.after", "the manifest, the hint names an older one", "probes forward"),
    Point("publish.hint.after", "the manifest and the hint", "goes on from it"),
)

NAMES = frozenset(point.name for point in POINTS)
CALL = "call"
"""Not a point, but every call that may change something: who dies at random dies before one of them."""


class Watch:
    """One process's way through the points. Its disks share it."""

    def __init__(
        self,
        note: Callable[[str], None] = lambda _: None,
        at: str | None = None,
        nth: int = 1,
        die: Callable[[], None] = lambda: os.kill(os.getpid(), signal.SIGKILL),
    ) -> None:
        """`note` is told the name of each point that is reached, also of the one it dies at."""
        if at is not None and at not in NAMES | {CALL}:
            raise ValueError(f"there is no crash point {at!r}")
        self.reached: dict[str, int] = {}
        self._note = note
        self._at = at
        self._nth = nth
        self._die = die
        # Large objects and slow appends are written by threads.
        self._mutex = threading.Lock()

    def reach(self, name: str, last: Callable[[], object] = lambda: None) -> None:
        """`last` is what the process still does if it dies here."""
        with self._mutex:
            count = self.reached[name] = self.reached.get(name, 0) + 1
            assert name in NAMES or name == CALL, name
            self._note(name)
            if name == self._at and count == self._nth:
                last()
                self._die()


_LOG_FILE = re.compile(r"/ledger/\d{20}\.jsonl\Z")
_LOG_LOCK = "/ledger/.lock"
_LEADER_LOCK = "/leader.lock"
_TEMPORARY = "/.tmp/"
_MANIFEST = re.compile(r"/manifests/\d{20}\.json\Z")
_HINT = "/manifests/_hint"
_VALUE = re.compile(r"/objects/[0-9a-f]{64}\Z")
_TABLE_FILE = re.compile(r"/tables/(\w+)/(\d{20})-\w+\.parquet\Z")

_BEFORE = {
    b'"event_type":"LeaderClaimed"': "claim.before",
    b'"event_type":"RunTriggered"': "run.before",
    b'"source":"worker"': "result.before",
    b'"kind":"reporter"': "report.before",
}
_DURABLE = {
    b'"event_type":"LeaderClaimed"': "claim.after",
    b'"event_type":"DeploymentCreated"': "deployment.durable",
    b'"event_type":"RunTriggered"': "run.durable",
    b'"event_type":"DispatchRequested"': "dispatch.durable",
    b'"outcome":"succeeded"': "result.durable",
    b'"outcome":"failed"': "failure.durable",
    b'"outcome":"interrupted"': "interruption.durable",
    b'"event_type":"MaterializationCompleted"': "version.durable",
    b'"event_type":"AuditRecorded"': "audit.durable",
    b'"kind":"reporter"': "report.durable",
}


class CrashingDisk:
    def __init__(self, disk: Disk, watch: Watch) -> None:
        self._disk = disk
        self._watch = watch
        self._contents: dict[str, str] = {}
        """Temporary file to the point at which what it holds is durable under its name."""
        self._linked: dict[str, str] = {}
        """Folder to what got a name there that is not durable yet."""
        self._files: set[tuple[str, str]] = set()
        """(table, revision) of which a file was written: a second one is merged."""

    def open(self, path: str, *, create: bool = False) -> File | None:
        self._watch.reach(CALL)
        file = self._disk.open(path, create=create)
        if file is None:
            return None
        if _LOG_FILE.search(path):
            if create:
                self._watch.reach("log.file.created")
            return _LogFile(file, self._watch)
        if path.endswith(_LOG_LOCK):
            return _LogLock(file, self._watch)
        if _TEMPORARY in path:
            if create:
                self._watch.reach("object.begun")
            return _Temporary(file, self._watch, path, self._contents)
        return file

    def link(self, source: str, target: str) -> bool:
        self._watch.reach(CALL)
        if _MANIFEST.search(target):
            self._watch.reach("publish.manifest.before")
        linked = self._disk.link(source, target)
        if linked:
            self._watch.reach("object.linked")
            if _MANIFEST.search(target):
                self._watch.reach("publish.manifest.linked")
            self._linked[os.path.dirname(target)] = self._named(source, target)
        return linked

    def _named(self, source: str, target: str) -> str:
        """The point that is reached when the new name is durable."""
        if _MANIFEST.search(target):
            return "publish.manifest.after"
        if _VALUE.search(target):
            return self._contents.pop(source, "")
        file = _TABLE_FILE.search(target)
        if file is None:
            return ""
        key = (file[1], file[2])
        merged = key in self._files
        self._files.add(key)
        return "publish.merge.file" if merged else "publish.file"

    def rename(self, source: str, target: str) -> None:
        self._watch.reach(CALL)
        self._disk.rename(source, target)
        if target.endswith(_HINT):
            self._watch.reach("publish.hint.after")

    def remove(self, path: str) -> None:
        self._watch.reach(CALL)
        self._disk.remove(path)

    def names(self, folder: str) -> list[str]:
        return self._disk.names(folder)

    def make_folder(self, folder: str) -> None:
        self._watch.reach(CALL)
        self._disk.make_folder(folder)

    def sync_folder(self, folder: str) -> None:
        self._watch.reach(CALL)
        self._disk.sync_folder(folder)
        if folder.endswith("/ledger"):
            self._watch.reach("log.file.named")
        named = self._linked.pop(folder, None)
        if named is not None:
            self._watch.reach("object.named")
            if named:
                self._watch.reach(named)

    def lock(self, path: str, *, wait: bool) -> bool:
        self._watch.reach(CALL)
        held = self._disk.lock(path, wait=wait)
        if held and path.endswith(_LOG_LOCK):
            self._watch.reach("log.locked")
        elif held and path.endswith(_LEADER_LOCK):
            self._watch.reach("lead.locked")
        return held

    def unlock(self, path: str) -> None:
        self._watch.reach(CALL)
        if path.endswith(_LEADER_LOCK):
            self._watch.reach("leave.before")
        self._disk.unlock(path)


class _Watched:
    """A file, as it is."""

    def __init__(self, file: File, watch: Watch) -> None:
        self._file = file
        self._watch = watch

    def size(self) -> int:
        return self._file.size()

    def read(self, start: int, length: int) -> bytes:
        return self._file.read(start, length)

    def append(self, data: bytes) -> None:
        self._file.append(data)

    def truncate(self, size: int) -> None:
        self._watch.reach(CALL)
        self._file.truncate(size)

    def sync(self) -> None:
        self._watch.reach(CALL)
        self._file.sync()

    def close(self) -> None:
        self._file.close()


class _LogLock(_Watched):
    def append(self, data: bytes) -> None:
        self._watch.reach(CALL)
        super().append(data)
        self._watch.reach("log.file.marked")


class _LogFile(_Watched):
    def __init__(self, file: File, watch: Watch) -> None:
        super().__init__(file, watch)
        self._unsynced: list[str] = []
        self._cut = False

    def append(self, data: bytes) -> None:
        self._watch.reach(CALL)
        self._watch.reach("log.append.before")
        for mark, name in _BEFORE.items():
            if mark in data:
                self._watch.reach(name)
        half = data[: len(data) // 2]
        self._watch.reach("log.append.torn", lambda: self._file.append(half))
        super().append(data)
        self._unsynced = [name for mark, name in _DURABLE.items() if mark in data]
        self._unsynced.append("log.append.after")
        self._watch.reach("log.append.unsynced")

    def truncate(self, size: int) -> None:
        super().truncate(size)
        self._watch.reach("log.tail.cut")
        self._cut = True

    def sync(self) -> None:
        super().sync()
        if self._cut:
            self._cut = False
            self._watch.reach("log.tail.synced")
        durable, self._unsynced = self._unsynced, []
        for name in durable:
            self._watch.reach(name)


class _Temporary(_Watched):
    """An object on its way. What it is shows in its first bytes: canonical JSON sorts its keys."""

    def __init__(self, file: File, watch: Watch, path: str, contents: dict[str, str]) -> None:
        super().__init__(file, watch)
        self._path = path
        self._contents = contents

    def append(self, data: bytes) -> None:
        self._watch.reach(CALL)
        if data.startswith(b'{"epoch":'):
            self._watch.reach("publish.files")
        elif data.startswith(b'[{"bytes":'):
            self._contents[self._path] = "publish.merge.list"
        elif data.startswith(b'{"assets":{'):
            self._contents[self._path] = "plan.stored"
        elif data.startswith(b'{"assets":['):
            self._contents[self._path] = "deployment.stored"
        half = data[: len(data) // 2]
        self._watch.reach("object.torn", lambda: self._file.append(half))
        super().append(data)
        self._watch.reach("object.unsynced")

    def sync(self) -> None:
        super().sync()
        self._watch.reach("object.written")


def table() -> str:
    """The points for people, as Markdown."""
    lines = ["| Point | On the disk | The next process |", "|---|---|---|"]
    lines += [f"| `{point.name}` | {point.there} | {point.then} |" for point in POINTS]
    return "\n".join(lines) + "\n"
