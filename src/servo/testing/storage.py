"""Storage that fails: disks that lose power, stores that lose answers, and a record of who saw what.

    trouble   how likely each fault is: CALM, ROUGH or STORM
    weather   the trouble there is now, for everything in a world; `off()` ends it
    machine   one computer: a disk that its processes share, whose power can be cut
    wire      the way to a remote store. A request is on its own once it is sent: the store may apply
              it long after the sender got an error, stopped waiting, or died

**Disks.** What a process wrote is seen by the others at once and survives `kill -9`. A power cut kills
all processes of the machine, and leaves of each file what was synced, and of the rest a beginning:
any number of bytes, perhaps with zeros after it. Of the changes to a folder since its last sync a
beginning is left, too. After an error of `sync` the bytes it was about may never reach the disk, though
a later `sync` succeeds and though reads still show them: as Linux does.

A lock belongs to a process and is let go when it dies. A call that waits for a lock cannot wait in
a world where calls take no time: an adapter takes and lets go within one stretch without an await
(or one function in a thread, which runs whole), so that nobody else can be holding it. Should somebody,
it is an AssertionError that names both.

**Stores.** `FaultyObjects` and `FaultyLog` wrap a store that is right, for one process:

    refused     Unavailable: it did not happen; also in bursts, a fifth of all calls for 30 seconds
    lost        Uncertain: it happened
    vanished    Uncertain: it did not happen, and will not
    stalled     Uncertain: it happens later, up to two minutes after, whoever lives then
    slow        up to ten seconds

Reads are refused or slow, never wrong. A dead process gets no answer.

Held by tests/sim/test_storage.py.
"""

import asyncio
import contextvars
import errno
import hashlib
import os.path
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

import msgspec

from servo.core import canonical
from servo.errors import Unavailable, Uncertain
from servo.ports.disk import File
from servo.ports.log import READ_BYTES, Log
from servo.ports.objects import ObjectInfo, Objects
from servo.testing.chance import Chance
from servo.testing.linearizable import BUDGET, is_linearizable
from servo.testing.loop import VirtualLoop
from servo.testing.processes import Process

T = TypeVar("T")

_BURST_SECONDS = 30
_BURST_REFUSED = 0.2
_SLOW_US = 10_000_000
_STALL_US = 120_000_000
_FULL_US = 20_000_000
_ZEROS = 0.25


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """How likely each fault is, for each call that it can happen to."""

    delay_us: int = 2_000
    """A request takes up to this long, and so does its answer."""
    slow: float = 0.0
    refused: float = 0.0
    lost: float = 0.0
    vanished: float = 0.0
    stalled: float = 0.0
    burst: float = 0.0
    """That this call begins one."""
    disk_full: float = 0.0
    """That the disk is full from this append on, for up to 20 seconds."""
    short_write: float = 0.0
    """That an append writes a part and fails."""
    sync_error: float = 0.0

    def off(self) -> "Trouble":
        """The same delays, and no faults."""
        return Trouble(delay_us=self.delay_us)


CALM = Trouble()
ROUGH = Trouble(
    delay_us=20_000,
    slow=0.01,
    refused=0.02,
    lost=0.02,
    vanished=0.01,
    stalled=0.01,
    burst=0.001,
    disk_full=0.001,
    short_write=0.005,
    sync_error=0.005,
)
STORM = Trouble(
    delay_us=200_000,
    slow=0.05,
    refused=0.10,
    lost=0.08,
    vanished=0.04,
    stalled=0.06,
    burst=0.01,
    disk_full=0.01,
    short_write=0.03,
    sync_error=0.03,
)


class Weather:
    """The trouble there is now. One for a world, so that one call ends it everywhere."""

    def __init__(self, trouble: Trouble = CALM) -> None:
        self.trouble = trouble
        self.burst_until = 0.0

    def off(self) -> None:
        """No more faults from now on. What is stalled already still happens."""
        self.trouble = self.trouble.off()
        self.burst_until = 0.0


# -- disks


class _Inode:
    """The contents of a file: what processes see, and what a power cut would leave for certain."""

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = b""
        # Ranges of `data` that a failed sync gave up: no later sync writes them.
        self.given_up: list[tuple[int, int]] = []

    def sync(self) -> None:
        image = bytearray(self.data)
        for start, end in self.given_up:
            image[start:end] = bytes(end - start)
        self.durable = bytes(image)

    def fail_to_sync(self, chance: Chance) -> None:
        kept = _common(self.durable, self.data)
        self.given_up.append((kept + chance.below(len(self.data) - kept + 1), len(self.data)))

    def truncate(self, size: int) -> None:
        if size > len(self.data):
            self.data.extend(bytes(size - len(self.data)))
        del self.data[size:]
        self.given_up = [(a, min(b, size)) for a, b in self.given_up if a < size]

    def cut_power(self, chance: Chance) -> None:
        if self.data != self.durable:
            image = bytearray(self.data)
            for start, end in self.given_up:
                image[start:end] = bytes(end - start)
            kept = _common(self.durable, image)
            if kept == len(self.durable) or chance.chance(0.5):
                left = kept + chance.below(len(image) - kept + 1)
                zeros = chance.below(len(image) - left + 1) if chance.chance(_ZEROS) else 0
                self.durable = bytes(image[:left]) + bytes(zeros)
            # Otherwise the shortening was lost, and all that came after it.
        self.data = bytearray(self.durable)
        self.given_up = []


def _common(one: bytes | bytearray, other: bytes | bytearray) -> int:
    """How many bytes at the beginning are the same."""
    shorter = min(len(one), len(other))
    if one[:shorter] == other[:shorter]:
        return shorter
    return next(i for i in range(shorter) if one[i] != other[i])


class _Change:
    """One change of a folder: names that appear (or are replaced) and names that go, in one step."""

    def __init__(
        self,
        put: dict[str, _Inode],
        gone: tuple[str, ...] = (),
        after: "tuple[_Folder, _Change] | None" = None,
    ) -> None:
        self.put = put
        self.gone = gone
        self.after = after
        """The other half of a rename between folders: a file is never in neither."""


class _Folder:
    def __init__(self) -> None:
        self.files: dict[str, _Inode] = {}
        self.durable: dict[str, _Inode] = {}
        self.changes: list[_Change] = []

    def apply(self, change: _Change) -> None:
        self.changes.append(change)
        _apply(self.files, change)

    def settle(self, count: int) -> None:
        """Make the first changes durable, and those of other folders that they rest on."""
        settled, self.changes = self.changes[:count], self.changes[count:]
        for change in settled:
            if change.after is not None:
                folder, put = change.after
                if put in folder.changes:
                    folder.settle(folder.changes.index(put) + 1)
            _apply(self.durable, change)


def _apply(files: dict[str, _Inode], change: _Change) -> None:
    files.update(change.put)
    for name in change.gone:
        files.pop(name, None)


class Machine:
    """A computer whose processes share a disk."""

    def __init__(
        self, loop: VirtualLoop, name: str, chance: Chance, weather: Weather | None = None
    ) -> None:
        self.name = name
        self.weather = weather or Weather()
        self._loop = loop
        self._chance = chance.fork(f"machine {name}")
        self._folders: dict[str, _Folder] = {"/": _Folder()}
        self._locks: dict[str, SimDisk] = {}
        self._disks: list[SimDisk] = []
        self._full_until = 0.0

    def disk(self, process: Process) -> "SimDisk":
        """The disk, as one process has it."""
        disk = SimDisk(self, process)
        self._disks.append(disk)
        process.on_death(disk.let_go)
        return disk

    def power_cut(self) -> None:
        """Kill every process of this machine, and forget what was not synced."""
        for disk in self._disks:
            disk.process.kill()
        self._disks.clear()
        folders = list(self._folders.values())
        for folder in folders:
            folder.settle(self._chance.below(len(folder.changes) + 1))
        for folder in folders:
            folder.changes.clear()
            folder.files = dict(folder.durable)
        for inode in {id(i): i for folder in folders for i in folder.files.values()}.values():
            inode.cut_power(self._chance)

    # What the handles of processes share.

    def _folder(self, folder: str) -> _Folder:
        found = self._folders.get(folder)
        if found is None:
            raise FileNotFoundError(errno.ENOENT, "no such folder on the simulated disk", folder)
        return found

    def _room(self, append: bool) -> None:
        now, likely = self._loop.time(), self.weather.trouble.disk_full
        if append and self._chance.chance(likely):
            self._full_until = now + self._chance.delay(0, _FULL_US)
        if likely and now < self._full_until:
            raise OSError(errno.ENOSPC, "the simulated disk is full")


class SimDisk:
    """`servo.ports.disk.Disk` for one process. Made by `Machine.disk`."""

    def __init__(self, machine: Machine, process: Process) -> None:
        self.process = process
        self._machine = machine

    def open(self, path: str, *, create: bool = False) -> File | None:
        self._call()
        folder, name = os.path.split(path)
        if not create and folder not in self._machine._folders:
            return None
        files = self._machine._folder(folder).files
        if name not in files:
            if not create:
                return None
            self._machine._room(append=False)
            self._machine._folder(folder).apply(_Change({name: _Inode()}))
        return _SimFile(self, files[name], folder)

    def link(self, source: str, target: str) -> bool:
        self._call()
        inode = self._inode(source)
        folder, name = os.path.split(target)
        if name in self._machine._folder(folder).files:
            return False
        self._machine._room(append=False)
        self._machine._folder(folder).apply(_Change({name: inode}))
        return True

    def rename(self, source: str, target: str) -> None:
        self._call()
        inode = self._inode(source)
        (old_folder, old_name), (folder, name) = os.path.split(source), os.path.split(target)
        if old_folder == folder:
            if old_name != name:
                self._machine._folder(folder).apply(_Change({name: inode}, (old_name,)))
            return
        target_folder = self._machine._folder(folder)
        put = _Change({name: inode})
        target_folder.apply(put)
        self._machine._folder(old_folder).apply(_Change({}, (old_name,), (target_folder, put)))

    def remove(self, path: str) -> None:
        self._call()
        folder, name = os.path.split(path)
        found = self._machine._folders.get(folder)
        if found is not None and name in found.files:
            found.apply(_Change({}, (name,)))

    def names(self, folder: str) -> list[str]:
        self._call()
        found = self._machine._folders.get(folder)
        if found is None:
            return []
        inside = [
            os.path.basename(other) + "/"
            for other in self._machine._folders
            if other != folder and os.path.dirname(other) == folder
        ]
        return [*found.files, *inside]

    def make_folder(self, folder: str) -> None:
        self._call()
        while folder not in self._machine._folders:
            self._machine._folders[folder] = _Folder()
            folder = os.path.dirname(folder)

    def sync_folder(self, folder: str) -> None:
        self._call()
        found = self._machine._folder(folder)
        if self._machine._chance.chance(self._machine.weather.trouble.sync_error):
            raise OSError(errno.EIO, "a folder of the simulated disk cannot be synced", folder)
        found.settle(len(found.changes))

    def lock(self, path: str, *, wait: bool) -> bool:
        self._call()
        folder, name = os.path.split(path)
        found = self._machine._folder(folder)
        if name not in found.files:
            found.apply(_Change({name: _Inode()}))
        holder = self._machine._locks.setdefault(path, self)
        if holder is not self and wait:
            raise AssertionError(
                f"process {self.process.name} waits for the lock {path}, which {holder.process!r} holds"
                " across an await; take and let go of it within one stretch"
            )
        return holder is self

    def unlock(self, path: str) -> None:
        self._call()
        if self._machine._locks.get(path) is self:
            del self._machine._locks[path]

    def let_go(self) -> None:
        """What the operating system does for a process that died."""
        locks = self._machine._locks
        for path in [path for path, holder in locks.items() if holder is self]:
            del locks[path]

    def _inode(self, path: str) -> _Inode:
        folder, name = os.path.split(path)
        inode = self._machine._folder(folder).files.get(name)
        if inode is None:
            raise FileNotFoundError(errno.ENOENT, "no such file on the simulated disk", path)
        return inode

    def _call(self) -> None:
        if self.process.disk_call():
            self._die()

    def _die(self) -> None:
        self.process.kill()
        self.process.check()


class _SimFile:
    def __init__(self, disk: SimDisk, inode: _Inode, folder: str) -> None:
        self._disk = disk
        self._inode = inode
        self._folder = folder
        self._closed = False

    def size(self) -> int:
        self._call()
        return len(self._inode.data)

    def read(self, start: int, length: int) -> bytes:
        self._call()
        return bytes(self._inode.data[start : start + length])

    def append(self, data: bytes) -> None:
        machine, chance = self._disk._machine, self._disk._machine._chance
        dies = self._disk.process.disk_write(self._folder)
        self._check_open()
        if dies:
            self._inode.data += data[: chance.below(len(data) + 1)]
            self._disk._die()
        machine._room(append=True)
        if chance.chance(machine.weather.trouble.short_write):
            self._inode.data += data[: chance.below(len(data) + 1)]
            raise OSError(errno.EIO, "the simulated disk wrote only a part")
        self._inode.data += data

    def truncate(self, size: int) -> None:
        self._call()
        self._inode.truncate(size)

    def sync(self) -> None:
        self._call()
        machine = self._disk._machine
        if machine._chance.chance(machine.weather.trouble.sync_error):
            self._inode.fail_to_sync(machine._chance)
            raise OSError(errno.EIO, "the simulated disk could not sync a file")
        self._inode.sync()

    def close(self) -> None:
        # Not counted: nothing durable hangs on it.
        self._closed = True

    def _call(self) -> None:
        self._disk._call()
        self._check_open()

    def _check_open(self) -> None:
        if self._closed:
            raise OSError(errno.EBADF, "the file is closed")


# -- stores at the other end of a wire


class _Wire:
    """Carries one process's requests to a store, and loses some."""

    def __init__(self, process: Process, chance: Chance, weather: Weather) -> None:
        self._process = process
        self._chance = chance.fork(f"wire {process.name}")
        self._weather = weather

    async def read(self, act: Callable[[], Awaitable[T]]) -> T:
        return await self._send(act, changes=False)

    async def write(self, act: Callable[[], Awaitable[T]]) -> T:
        return await self._send(act, changes=True)

    async def _send(self, act: Callable[[], Awaitable[T]], *, changes: bool) -> T:
        self._process.check()
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Callable[[], T]] = loop.create_future()
        # In a context of its own: the request lives on when its sender does not.
        loop.create_task(  # noqa: RUF006  # the loop keeps it
            self._travel(act, answer, changes),
            name=f"request of {self._process.name}",
            context=contextvars.Context(),
        )
        give = await answer
        return give()

    async def _travel(
        self,
        act: Callable[[], Awaitable[T]],
        answer: "asyncio.Future[Callable[[], T]]",
        changes: bool,
    ) -> None:
        chance, trouble = self._chance, self._weather.trouble
        await asyncio.sleep(self._delay(trouble))
        landing: Awaitable[None] | None = None
        if self._refused(trouble):
            give = _raising(Unavailable("the simulated store refused; try again"))
        elif changes and chance.chance(trouble.lost):
            await _quietly(act)
            give = _raising(Uncertain("the simulated store's answer was lost"))
        elif changes and chance.chance(trouble.vanished):
            give = _raising(Uncertain("the simulated store never got the request"))
        elif changes and chance.chance(trouble.stalled):
            landing = self._land(act, chance.delay(0, _STALL_US))
            give = _raising(Uncertain("the request to the simulated store is stalled"))
        else:
            give = await _outcome(act)
        if landing is None:
            await asyncio.sleep(self._delay(trouble))
        if not answer.done():
            answer.set_result(give)
        if landing is not None:
            await landing

    async def _land(self, act: Callable[[], Awaitable[Any]], delay: float) -> None:
        await asyncio.sleep(delay)
        await _quietly(act)

    def _delay(self, trouble: Trouble) -> float:
        slow = self._chance.chance(trouble.slow)
        return self._chance.delay(0, _SLOW_US if slow else trouble.delay_us)

    def _refused(self, trouble: Trouble) -> bool:
        chance, weather = self._chance, self._weather
        now = asyncio.get_running_loop().time()
        if chance.chance(trouble.burst):
            weather.burst_until = now + _BURST_SECONDS
        in_burst = now < weather.burst_until and chance.chance(_BURST_REFUSED)
        return in_burst or chance.chance(trouble.refused)


async def _outcome(act: Callable[[], Awaitable[T]]) -> Callable[[], T]:
    try:
        value = await act()
    except Exception as error:  # noqa: BLE001  # carried to the sender
        return _raising(error)
    return lambda: value


async def _quietly(act: Callable[[], Awaitable[Any]]) -> None:
    """Do it, and tell nobody how it went."""
    await _outcome(act)


def _raising(error: Exception) -> Callable[[], Any]:
    def give() -> Any:
        raise error

    return give


class FaultyObjects:
    """`servo.ports.objects.Objects`, over a wire."""

    def __init__(
        self, objects: Objects, process: Process, chance: Chance, weather: Weather
    ) -> None:
        self._objects = objects
        self._wire = _Wire(process, chance.fork("objects"), weather)

    async def get(self, path: str) -> bytes | None:
        return await self._wire.read(lambda: self._objects.get(path))

    async def get_range(self, path: str, start: int, length: int) -> bytes | None:
        return await self._wire.read(lambda: self._objects.get_range(path, start, length))

    async def head(self, path: str) -> ObjectInfo | None:
        return await self._wire.read(lambda: self._objects.head(path))

    async def put(self, path: str, data: bytes) -> None:
        await self._wire.write(lambda: self._objects.put(path, data))

    async def put_new(self, path: str, data: bytes) -> bool:
        return await self._wire.write(lambda: self._objects.put_new(path, data))

    async def delete(self, path: str) -> None:
        await self._wire.write(lambda: self._objects.delete(path))

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        async def everything() -> "list[ObjectInfo]":
            return [info async for info in self._objects.list(prefix)]

        for info in await self._wire.read(everything):
            yield info


class FaultyLog:
    """`servo.ports.log.Log`, over a wire."""

    def __init__(self, log: Log, process: Process, chance: Chance, weather: Weather) -> None:
        self._log = log
        self._wire = _Wire(process, chance.fork("log"), weather)

    async def append(self, position: int, data: bytes) -> None:
        await self._wire.write(lambda: self._log.append(position, data))

    async def read(self, start: int, limit: int = READ_BYTES) -> list[bytes]:
        return await self._wire.read(lambda: self._log.read(start, limit))

    async def head(self) -> int:
        return await self._wire.read(self._log.head)


# -- who saw what


class History:
    """What the clients of a store asked and were told, one register for each object.

    `put_new` is a cas from null to the content, `put` a write, `delete` a write of null, `get` a read.
    A content is known by its digest. Only paths that begin with `family` are recorded. The events are
    those of `servo.testing.linearizable`; every operation is a process of its own, because those
    of one process overlap.
    """

    def __init__(self, family: str = "") -> None:
        self.family = family
        self.events: dict[str, list[dict[str, Any]]] = {}
        self._operations = 0

    def recorded(self, objects: Objects, process: Process) -> "Recorded":
        """The same objects, seen through this history by one process."""
        return Recorded(objects, self, process.name)

    def begin(self, who: str, path: str, f: str, value: object) -> Callable[..., None]:
        """Note an invocation; what is returned notes its end."""
        self._operations += 1
        events = self.events.setdefault(path, [])
        event = {"process": f"{who}#{self._operations}", "f": f}
        events.append({**event, "type": "invoke", "value": value})

        def end(kind: str, value: object = value, **more: object) -> None:
            events.append({**event, "type": kind, "value": value, **more})

        return end

    def wrong(self, budget: int = BUDGET) -> list[str]:
        """The objects whose history no single register could have: empty if all is well."""
        found = []
        for path, events in self.events.items():
            verdict = is_linearizable(events, budget=budget)
            if verdict is None:
                found.append(f"{path}: undecided after {budget:,} steps, {len(events)} events")
            elif not verdict:
                found.append(f"{path}: not linearizable:\n{self.lines(path)}")
        return found

    def lines(self, path: str) -> str:
        """One event in a line, as other checkers read them."""
        return "".join(canonical.dumps(e).decode() + "\n" for e in self.events.get(path, ()))


class Recorded:
    """Objects whose calls are noted in a `History`."""

    def __init__(self, objects: Objects, history: History, who: str) -> None:
        self._objects = objects
        self._history = history
        self._who = who

    async def get(self, path: str) -> bytes | None:
        if not path.startswith(self._history.family):
            return await self._objects.get(path)
        end = self._history.begin(self._who, path, "read", None)
        try:
            data = await self._objects.get(path)
        except Unavailable:
            end("fail")
            raise
        end("ok", _content(data))
        return data

    async def put_new(self, path: str, data: bytes) -> bool:
        change = [None, _content(data)]
        return await self._noted(path, "cas", change, lambda: self._objects.put_new(path, data))

    async def put(self, path: str, data: bytes) -> None:
        await self._noted(path, "write", _content(data), lambda: self._objects.put(path, data))

    async def delete(self, path: str) -> None:
        await self._noted(path, "write", None, lambda: self._objects.delete(path))

    async def _noted(self, path: str, f: str, value: object, act: Callable[[], Awaitable[T]]) -> T:
        if not path.startswith(self._history.family):
            return await act()
        end = self._history.begin(self._who, path, f, value)
        try:
            result = await act()
        except Uncertain:
            end("info")
            raise
        except Unavailable:
            end("fail", definite=False)
            raise
        # A killed or cancelled caller notes no end, which means the same as "info".
        end("fail" if result is False else "ok")
        return result

    async def get_range(self, path: str, start: int, length: int) -> bytes | None:
        return await self._objects.get_range(path, start, length)

    async def head(self, path: str) -> ObjectInfo | None:
        return await self._objects.head(path)

    def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        return self._objects.list(prefix)


def _content(data: bytes | None) -> str | None:
    return None if data is None else hashlib.sha256(data).hexdigest()[:16]
