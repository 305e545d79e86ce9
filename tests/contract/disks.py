"""A disk made of dictionaries that fails where a test wants it to.

A `Machine` is what several processes share; each has a `SimulatedDisk` of its own, as each process has
its own descriptors and locks. A machine keeps two states: what processes see, and what a power cut
leaves (bytes that were synced, names whose folder was synced).
"""

import errno
import os.path
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

T = TypeVar("T")


class Killed(BaseException):
    """The process is gone: nothing in it may catch this and go on."""


@dataclass(eq=False)
class Inode:
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""


class Machine:
    def __init__(self, room: int | None = None) -> None:
        self.room = room
        self.files: dict[str, Inode] = {}
        self.durable_files: dict[str, Inode] = {}
        self.folders = {"/"}
        self.locks: dict[str, threading.Lock] = {}
        self.calls: list[str] = []
        self.fault: Callable[[str, str], None] | None = None
        """Called with the name of a call, "before" and "after" it; may raise."""

    def used(self) -> int:
        return sum(len(inode.data) for inode in self.files.values())

    def fail(self, name: str, when: str, error: BaseException | None = None) -> None:
        """The next call of that name fails, once."""

        def fault(called: str, moment: str) -> None:
            if (called, moment) == (name, when):
                self.fault = None
                raise error or OSError(errno.EIO, "injected")

        self.fault = fault

    def kill_at(self, number: int, when: str) -> None:
        """The process dies before or after its n-th call from now on."""
        count = 0

        def fault(called: str, moment: str) -> None:
            nonlocal count
            if moment == when:
                count += 1
                if count > number:
                    raise Killed(called)

        self.fault = fault

    def power_cut(self, keep: int = 0, *, zeros: bool = False) -> None:
        """Forget what was not synced, but for the first `keep` bytes of each unsynced end. `zeros`:
        the end has its length, and NULs where its bytes were not written."""
        self.fault = None
        self.locks.clear()
        self.files = dict(self.durable_files)
        for inode in self.files.values():
            if inode.data.startswith(inode.durable):
                end = inode.data[len(inode.durable) :]
                lost = bytes(max(0, len(end) - keep)) if zeros else b""
                inode.durable += bytes(end[:keep]) + lost
            inode.data = bytearray(inode.durable)


class SimulatedFile:
    def __init__(self, machine: Machine, inode: Inode) -> None:
        self._machine = machine
        self._inode = inode
        self.closed = False

    def size(self) -> int:
        assert not self.closed
        return len(self._inode.data)

    def read(self, start: int, length: int) -> bytes:
        assert not self.closed
        return bytes(self._inode.data[start : start + length])

    def append(self, data: bytes) -> None:
        assert not self.closed
        self._call("append", lambda: self._append(data))

    def _append(self, data: bytes) -> None:
        room = self._machine.room
        fits = len(data) if room is None else max(0, room - self._machine.used())
        self._inode.data += data[:fits]
        if fits < len(data):
            raise OSError(errno.ENOSPC, "No space left on device")

    def truncate(self, size: int) -> None:
        def cut() -> None:
            del self._inode.data[size:]

        self._call("truncate", cut)

    def sync(self) -> None:
        def keep() -> None:
            self._inode.durable = bytes(self._inode.data)

        self._call("sync", keep)

    def close(self) -> None:
        self.closed = True

    def _call(self, name: str, action: Callable[[], None]) -> None:
        _call(self._machine, name, action)


def _call(machine: Machine, name: str, action: Callable[[], T]) -> T:
    machine.calls.append(name)
    if machine.fault:
        machine.fault(name, "before")
    result = action()
    if machine.fault:
        machine.fault(name, "after")
    return result


class SimulatedDisk:
    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self._held: set[str] = set()

    def open(self, path: str, *, create: bool = False) -> SimulatedFile | None:
        def make() -> None:
            assert os.path.dirname(path) in self._machine.folders
            self._machine.files[path] = Inode()

        if create and path not in self._machine.files:
            _call(self._machine, "create", make)
        inode = self._machine.files.get(path)
        return SimulatedFile(self._machine, inode) if inode else None

    def link(self, source: str, target: str) -> bool:
        def link() -> bool:
            if target in self._machine.files:
                return False
            self._machine.files[target] = self._machine.files[source]
            return True

        return _call(self._machine, "link", link)

    def rename(self, source: str, target: str) -> None:
        def rename() -> None:
            self._machine.files[target] = self._machine.files.pop(source)

        _call(self._machine, "rename", rename)

    def remove(self, path: str) -> None:
        _call(self._machine, "remove", lambda: self._machine.files.pop(path, None))

    def names(self, folder: str) -> list[str]:
        found = set()
        for path in self._machine.files:
            if path.startswith(f"{folder}/"):
                first, slash, _ = path[len(folder) + 1 :].partition("/")
                found.add(first + slash)
        return sorted(found)

    def make_folder(self, folder: str) -> None:
        self._machine.folders.add(folder)

    def sync_folder(self, folder: str) -> None:
        def keep() -> None:
            durable = self._machine.durable_files
            for path in [p for p in durable if os.path.dirname(p) == folder]:
                del durable[path]
            here = {p: i for p, i in self._machine.files.items() if os.path.dirname(p) == folder}
            durable.update(here)

        _call(self._machine, "sync_folder", keep)

    def lock(self, path: str, *, wait: bool) -> bool:
        if path in self._held:
            return True
        lock = self._machine.locks.setdefault(path, threading.Lock())
        if not lock.acquire(blocking=wait, timeout=10 if wait else -1):
            assert not wait, f"{path} is never let go"
            return False
        self._held.add(path)
        return True

    def unlock(self, path: str) -> None:
        if path in self._held:
            self._held.remove(path)
            if path in self._machine.locks:
                self._machine.locks[path].release()

    def die(self) -> None:
        """What the operating system does for a process that ends."""
        for path in list(self._held):
            self.unlock(path)
