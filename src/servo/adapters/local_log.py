"""The log in a local folder: `servo.ports.log.Log` on `{folder}/ledger/{first:020d}.jsonl`.

    file      segments one after the other; its name is the position of the first one
    last      the file with the highest name: the only one that grows. A new one is begun when it has
              reached FILE_BYTES; the others are sealed
    end       where the last whole segment of a file ends, as far as this process has looked
    torn end  bytes behind `end` that are no whole segment (`servo.core.segments`)

**Writers** append under one OS lock, `ledger/.lock`: look what others appended since the last look,
compare the position, cut a torn end off, write, sync, let go. The lock's file has a byte for each
file that was ever begun, added before the file is: a writer that finds it unchanged knows that the
last file is still the last. The lock belongs to the `Disk` object, so a log needs one of its own: two
logs that share one do not keep each other out.

**Readers** take no lock, never cut, and return whole segments only. What they know of a file is a
list of ends that only grows; should a file not continue where it was left (a writer whose sync failed
took its segment back), it is looked through again from its beginning before anything is called
corrupt.

Order of writes, and what a crash between two of them leaves:

    new file   sync the old file · create · sync the folder · then as below
               crash: an empty file whose name may not be durable. Whoever appends the first segment
               of a file syncs the folder first, so nothing durable is ever in a file without a name
    torn end   truncate · sync · then as below
    append     write · sync · answer
               crash after the write: the segment is whole, or torn. If whole, nobody was told, and
               it counts: the next append makes both durable

**A failed append.** If the write failed and was cut off again it did not happen (`Unavailable`). If the
sync failed nobody knows what is on the disk, and the system's memory may show bytes that are not
there, so reading them back would prove nothing: they are cut off, and the answer is `Uncertain`. If
even that fails, every later call first tries to cut them, and refuses to answer until it can. After
any failure all that was known of the files is forgotten. One window stays open: a process that is
killed between a failed sync and the cut leaves bytes that look durable to the next writer and may not
be. A power cut later on shows it, as `Corrupt`; a mark in a file before and after each append would
close it, at a price that every append pays.

**Where it runs.** On the event loop's thread, because handing over to another thread costs half as
much again as the append itself; but not after an append that took longer than SLOW, nor for a read
that has much to look through: these go to a worker thread, so that a slow disk does not hold the loop.

Held by tests/contract/test_log.py and tests/contract/test_local_log.py.
"""

import asyncio
import errno
import re
import threading
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from servo.core.segments import check_framing, split
from servo.errors import Conflict, Corrupt, Invalid, Unavailable, Uncertain
from servo.ports.disk import Disk, File
from servo.ports.log import READ_BYTES

FILE_BYTES = 8 * 2**20
SLOW = 0.005
_FAR = 2**20
_FULL = (errno.ENOSPC, errno.EDQUOT)
_NAME = re.compile(r"\d{20}\.jsonl\Z")


class LocalLog:
    def __init__(self, disk: Disk, folder: str, *, file_bytes: int = FILE_BYTES) -> None:
        self._disk = disk
        self._folder = f"{folder}/ledger"
        self._lock_path = f"{self._folder}/.lock"
        self._file_bytes = file_bytes
        # Coroutines wait for their turn here without holding the loop; the mutex is for a thread that
        # still works on behalf of a coroutine that was cancelled.
        self._turn = asyncio.Lock()
        self._mutex = threading.Lock()
        self._slow = False
        self._firsts: list[int] = []
        # The lock's file grows by a byte whenever a file is begun, so that who appends need not look for
        # a newer file each time.
        self._begun: File | None = None
        self._begun_seen = -1
        self._last: _Part | None = None
        self._sealed: _Part | None = None
        self._doubt: _Doubt | None = None

    async def append(self, position: int, data: bytes) -> None:
        check_framing(position, data)
        async with self._turn:
            clock = asyncio.get_running_loop().time
            started = clock()
            try:
                if self._slow:
                    await asyncio.to_thread(self._append, position, data)
                else:
                    self._append(position, data)
            finally:
                self._slow = clock() - started > SLOW

    async def read(self, start: int, limit: int = READ_BYTES) -> list[bytes]:
        if start < 1:
            raise Invalid(f"there is no segment {start}: positions count from 1")
        async with self._turn:
            if self._bytes_ahead(start) > _FAR:
                return await asyncio.to_thread(self._read, start, limit)
            return self._read(start, limit)

    async def head(self) -> int:
        async with self._turn:
            if self._bytes_ahead(None) > _FAR:
                return await asyncio.to_thread(self._head)
            return self._head()

    def close(self) -> None:
        """Let go of open files. The log stays usable: the next call opens them again."""
        with self._mutex:
            self._forget()
            if self._begun is not None:
                self._begun.close()
                self._begun = None

    # ---------------------------------------------------------------- appending

    def _append(self, position: int, data: bytes) -> None:
        with self._mutex:
            self._take_lock()
            try:
                last, torn = self._look_to_append()
                following = last.next if last else 1
                if position != following:
                    raise Conflict(
                        f"segment {position} cannot be appended: the head of the log is"
                        f" {following - 1}; read on from there"
                    )
                try:
                    last = self._prepare(position, last, torn)
                    self._write(last, data)
                except BaseException:
                    # Also for what is none of our errors, such as Ctrl-C between write and sync.
                    self._forget()
                    raise
                last.ends.append(last.end + len(data))
            finally:
                self._disk.unlock(self._lock_path)

    def _take_lock(self) -> None:
        try:
            if self._begun is None:
                self._disk.make_folder(self._folder)
                self._begun = self._disk.open(self._lock_path, create=True)
            self._disk.lock(self._lock_path, wait=True)
        except OSError as error:
            raise _unavailable("lock", self._folder, error) from error

    def _look_to_append(self) -> "tuple[_Part | None, bool]":
        """Under the lock: the last file as it is now. Mostly this is one question: did it grow?"""
        try:
            if self._doubt:
                self._settle(self._doubt)
            assert self._begun is not None
            begun = self._begun.size()
            last = self._last
            if last is not None and begun == self._begun_seen and last.file.size() == last.end:
                return last, False
            found = self._catch_up()
            self._begun_seen = begun
            return found
        except OSError as error:
            raise _unavailable("append to", self._folder, error) from error

    def _prepare(self, position: int, last: "_Part | None", torn: bool) -> "_Part":
        """The file to append to, ending where its last whole segment ends."""
        try:
            if last is None or (last.end >= self._file_bytes and not torn):
                last = self._begin(position, last)
            if torn:
                last.file.truncate(last.end)
                last.file.sync()
            if not last.ends:
                self._disk.sync_folder(self._folder)
        except OSError as error:
            raise _unavailable("append to", self._folder, error) from error
        return last

    def _begin(self, position: int, last: "_Part | None") -> "_Part":
        if last is not None:
            # Its end may be another's, who died between write and sync.
            last.file.sync()
        assert self._begun is not None
        self._begun.append(b"\n")
        path = self._path(position)
        file = self._disk.open(path, create=True)
        assert file is not None
        return self._move_on(_Part(position, path, file))

    def _write(self, last: "_Part", data: bytes) -> None:
        try:
            last.file.append(data)
        except OSError as error:
            if self._cut(last, data, sync=False):
                raise _unavailable("append to", last.path, error) from error
            raise Uncertain(
                f"appending to {last.path} failed ({_why(error)}), and so did taking it back; check the"
                " disk, then read the log again"
            ) from error
        try:
            last.file.sync()
        except OSError as error:
            self._cut(last, data, sync=True)
            raise Uncertain(
                f"{last.path} could not be made durable ({_why(error)}), and what is on the disk now is"
                " not known; check the disk, then read the log again"
            ) from error

    def _cut(self, last: "_Part", data: bytes, *, sync: bool) -> bool:
        """Take back what a failed append may have left; False: it is remembered as in doubt."""
        try:
            last.file.truncate(last.end)
            if sync:
                last.file.sync()
        except OSError:
            self._doubt = _Doubt(last.path, last.end, data)
            return False
        return True

    def _settle(self, doubt: "_Doubt") -> None:
        """Under the lock: cut what a failed append may have left, unless others built on it."""
        file = self._disk.open(doubt.path)
        if file is not None:
            try:
                # Only our own bytes: if the cut happened and its sync failed, what is there now is
                # what another appended since.
                if doubt.data.startswith(file.read(doubt.end, len(doubt.data) + 1)):
                    file.truncate(doubt.end)
                file.sync()
            finally:
                file.close()
        self._doubt = None

    # ---------------------------------------------------------------- reading

    def _bytes_ahead(self, start: int | None) -> int:
        """How many bytes that it has not yet seen a call may have to look through."""
        with self._mutex, self._reading():
            last = self._last or self._find_last()
            if last is None:
                return 0
            if start is None or start >= last.first:
                return last.file.size() - last.end
            seen = self._sealed
            return 0 if seen and seen.first <= start < seen.next else self._file_bytes

    def _head(self) -> int:
        with self._mutex:
            last = self._look()
            return last.next - 1 if last else 0

    def _read(self, start: int, limit: int) -> list[bytes]:
        with self._mutex:
            last = self._look()
            if last is None or start >= last.next:
                return []
            with self._reading():
                part = last if start >= last.first else self._sealed_part(start)
                begin = part.start(start)
                # Up to the segment that reaches the limit; at least one.
                at = start - part.first
                stop = min(bisect_left(part.ends, begin + limit, lo=at), len(part.ends) - 1)
                data = part.file.read(begin, part.ends[stop] - begin)
            if len(data) != part.ends[stop] - begin:
                self._forget()
                raise Unavailable(f"{part.path} was cut while it was read; read again")
            bounds = [begin, *part.ends[at : stop + 1]]
            return [data[bounds[i] - begin : bounds[i + 1] - begin] for i in range(len(bounds) - 1)]

    def _look(self) -> "_Part | None":
        """The last file as it is now."""
        if self._doubt:
            self._take_lock()
            try:
                with self._reading():
                    self._settle(self._doubt)
            finally:
                self._disk.unlock(self._lock_path)
        with self._reading():
            return self._catch_up()[0]

    def _catch_up(self) -> "tuple[_Part | None, bool]":
        """Learn what was appended since the last look: the last file, and whether its end is torn."""
        last = self._last or self._find_last()
        while last is not None:
            size = last.file.size()
            if size != last.end:
                try:
                    torn = last.grow(size)
                except Corrupt:
                    # A writer may have cut and written while we read, or have taken back what we saw:
                    # look again from the beginning before calling for help.
                    last.ends = array("Q")
                    torn = last.grow(last.file.size())
                if torn:
                    return last, True
            # Only a file that has segments can have been sealed since.
            file = self._disk.open(self._path(last.next)) if last.ends else None
            if file is None:
                return last, False
            last = self._move_on(_Part(last.next, self._path(last.next), file))
        return None, False

    def _find_last(self) -> "_Part | None":
        names = self._disk.names(self._folder)
        self._firsts = sorted(int(name[:20]) for name in names if _NAME.match(name))
        if not self._firsts:
            return None
        path = self._path(self._firsts[-1])
        file = self._disk.open(path)
        if file is None:
            raise Unavailable(f"{path} went away while it was opened; try again")
        self._last = _Part(self._firsts[-1], path, file)
        return self._last

    def _move_on(self, part: "_Part") -> "_Part":
        if self._last is not None:
            self._last.file.close()
        self._last = part
        self._firsts.append(part.first)
        return part

    def _sealed_part(self, position: int) -> "_Part":
        """The file, no longer growing, that holds a position; looked through once."""
        at = bisect_right(self._firsts, position) - 1
        if at < 0:
            raise Corrupt(
                f"segment {position} is missing: the oldest file in {self._folder} begins with"
                f" segment {self._firsts[0]}; bring back the files before it from a backup"
            )
        first, following = self._firsts[at], self._firsts[at + 1]
        if self._sealed is None or self._sealed.first != first:
            if self._sealed is not None:
                self._sealed.file.close()
                self._sealed = None
            path = self._path(first)
            file = self._disk.open(path)
            if file is None:
                raise Corrupt(f"{path} is missing; bring it back from a backup")
            part = _Part(first, path, file)
            torn = part.grow(file.size())
            if torn or part.next != following:
                file.close()
                raise Corrupt(
                    f"{path} should end with segment {following - 1}, because the next file begins"
                    f" with {following}, but {'it is cut short in' if torn else 'it ends after'}"
                    f" segment {part.next if torn else part.next - 1}; bring it back from a backup"
                )
            self._sealed = part
        return self._sealed

    @contextmanager
    def _reading(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise _unavailable("read", self._folder, error) from error

    def _forget(self) -> None:
        for part in (self._last, self._sealed):
            if part is not None:
                part.file.close()
        self._last = self._sealed = None

    def _path(self, first: int) -> str:
        return f"{self._folder}/{first:020d}.jsonl"


class _Doubt(NamedTuple):
    """Where a failed append may have left bytes that could not be cut."""

    path: str
    end: int
    data: bytes


class _Part:
    """One file, and where each of its segments that were seen so far ends."""

    __slots__ = ("ends", "file", "first", "path")

    def __init__(self, first: int, path: str, file: File) -> None:
        self.first = first
        self.path = path
        self.file = file
        self.ends = array("Q")

    @property
    def end(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def next(self) -> int:
        """The position of the segment that would come next."""
        return self.first + len(self.ends)

    def start(self, position: int) -> int:
        return self.ends[position - self.first - 1] if position > self.first else 0

    def grow(self, size: int) -> bool:
        """Find the segments between what was seen and `size`; True: a torn end follows them."""
        base = self.end
        if size < base:
            raise Corrupt(f"{self.path} is shorter than it was")
        data = self.file.read(base, size - base)
        try:
            found = split(data)
        except Corrupt as error:
            raise Corrupt(
                f"{self.path} is damaged {error}; bring the file back from a backup"
            ) from None
        for position, start, stop in found.bounds:
            if position != self.next:
                raise Corrupt(
                    f"{self.path} has segment {position} at byte {base + start}, where segment"
                    f" {self.next} should be; bring the file back from a backup"
                )
            self.ends.append(base + stop)
        return found.rest < len(data)


def _unavailable(action: str, path: str, error: OSError) -> Unavailable:
    done = "make room" if error.errno in _FULL else "check the disk"
    return Unavailable(
        f"could not {action} {path}: {_why(error)}; {done}, then try again (nothing was appended)"
    )


def _why(error: OSError) -> str:
    return "the disk is full" if error.errno in _FULL else str(error)
