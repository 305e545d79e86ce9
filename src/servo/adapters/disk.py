"""The real disk: `servo.ports.disk.Disk` on system calls.

Locks are `flock`s on a file of their own, one open file per lock and per `LocalDisk`. So two
`LocalDisk`s keep each other out, in one process as in two, while within one `LocalDisk` a lock that is
held is held: whoever needs to be kept out needs a `LocalDisk` of his own. A child made by `fork` closes
its copies at once: otherwise a lock would outlive the process that took it, in a child that knows
nothing of it.

A new file is not durable before its folder was synced, nor a folder before the one above it was.
`make_folder` syncs on the way down, from the first one above that was there already; and that one's
own name too, because whoever made it may have died before the sync.

Usable from the event loop's thread and worker threads at once: each call is one or a few system
calls on a descriptor, and what is remembered (locks, folders) changes in single steps.
"""

import contextlib
import errno
import fcntl
import os
import weakref

_LOCK = fcntl.LOCK_EX
_LOCK_NOW = fcntl.LOCK_EX | fcntl.LOCK_NB
_REMEMBERED = 10_000
_NO_FILE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class LocalFile:
    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def size(self) -> int:
        # A third of the price of fstat, and nothing here depends on the offset it moves.
        return os.lseek(self._descriptor, 0, os.SEEK_END)

    def read(self, start: int, length: int) -> bytes:
        data = os.pread(self._descriptor, length, start)
        if len(data) == length:
            return data
        pieces = [data]
        while data and (missing := length - sum(map(len, pieces))):
            # A read of gigabytes, or one that a signal cut short.
            data = os.pread(self._descriptor, missing, start + length - missing)
            pieces.append(data)
        return b"".join(pieces)

    def append(self, data: bytes) -> None:
        written = os.write(self._descriptor, data)
        while written < len(data):
            # A full disk first writes what fits, and only then says so.
            written += os.write(self._descriptor, memoryview(data)[written:])

    def truncate(self, size: int) -> None:
        os.ftruncate(self._descriptor, size)

    def sync(self) -> None:
        os.fdatasync(self._descriptor)

    def close(self) -> None:
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def __del__(self) -> None:
        self.close()


class LocalDisk:
    def __init__(self) -> None:
        # Files of locks stay open: opening one costs more than taking the lock.
        self._locks: dict[str, int] = {}
        self._held: set[str] = set()
        self._durable_folders: set[str] = set()
        _disks.add(self)

    def open(self, path: str, *, create: bool = False) -> LocalFile | None:
        if create:
            return LocalFile(os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o666))
        try:
            return LocalFile(os.open(path, os.O_RDWR | os.O_APPEND))
        except _NO_FILE:
            return None
        except OSError as error:
            if error.errno not in (errno.EACCES, errno.EROFS):
                raise
            # What may only be read can still be read.
            return LocalFile(os.open(path, os.O_RDONLY))

    def link(self, source: str, target: str) -> bool:
        try:
            os.link(source, target)
        except FileExistsError:
            return False
        return True

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        with contextlib.suppress(*_NO_FILE):
            os.unlink(path)

    def names(self, folder: str) -> list[str]:
        try:
            with os.scandir(folder) as entries:
                return [
                    f"{entry.name}/" if entry.is_dir(follow_symlinks=False) else entry.name
                    for entry in entries
                ]
        except (FileNotFoundError, NotADirectoryError):
            return []

    def make_folder(self, folder: str) -> None:
        if folder in self._durable_folders:
            return
        above = os.path.dirname(folder)
        if os.path.isdir(folder):
            with contextlib.suppress(PermissionError):  # a parent that is not ours to read
                self.sync_folder(above)
        else:
            self.make_folder(above)
            try:
                os.mkdir(folder)
            except FileExistsError:
                if not os.path.isdir(folder):
                    raise NotADirectoryError(
                        errno.ENOTDIR, "a file is in the way", folder
                    ) from None
            self.sync_folder(above)
        if len(self._durable_folders) >= _REMEMBERED:
            self._durable_folders.clear()
        self._durable_folders.add(folder)

    def sync_folder(self, folder: str) -> None:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def lock(self, path: str, *, wait: bool) -> bool:
        if path in self._held:
            return True
        descriptor = self._locks.get(path)
        if descriptor is None:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
            self._locks[path] = descriptor
        try:
            fcntl.flock(descriptor, _LOCK if wait else _LOCK_NOW)
        except BlockingIOError:
            return False
        self._held.add(path)
        return True

    def unlock(self, path: str) -> None:
        if path in self._held:
            self._held.remove(path)
            fcntl.flock(self._locks[path], fcntl.LOCK_UN)

    def __del__(self) -> None:
        self._close_locks()

    def _close_locks(self) -> None:
        self._held.clear()
        while self._locks:
            os.close(self._locks.popitem()[1])


_disks: "weakref.WeakSet[LocalDisk]" = weakref.WeakSet()


def _after_fork() -> None:
    for disk in list(_disks):
        disk._close_locks()


os.register_at_fork(after_in_child=_after_fork)
