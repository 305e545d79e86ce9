"""Objects in a local folder: `servo.ports.objects.Objects`.

An object is a file of the same path. It is written under a name that nobody else has in `.tmp/`
(no path of an object can begin with a dot, so none is ever taken for one), and then gets its real
name in one step, whole or not at all:

    put_new   write · sync · link to the path: one winner · sync its folder · remove the other name
    put       write · sync · rename to the path · sync its folder

A crash before the link or rename leaves a file in `.tmp/` that nobody reads; a crash after it, the
whole object. So an error before that step means that it did not happen (`Unavailable`), and one after
it that nobody knows whether a power cut would undo it (`Uncertain`).

A path is the name of an object or of a folder, never both: `a` cannot be written beside `a/b`. Folders
stay when their last object goes.

What is larger than SMALL is read and written by a worker thread, and so is everything after a write
that took longer than SLOW: several files then wait for a slow disk together, and hold up nobody else.
The rest is faster without.

Held by tests/contract/test_objects.py.
"""

import asyncio
import contextlib
import errno
import os.path
from collections.abc import AsyncIterator, Callable

from servo.core.paths import check_path, check_prefix
from servo.errors import Invalid, Unavailable, Uncertain
from servo.ports.disk import Disk, File
from servo.ports.objects import ObjectInfo

SMALL = 2**20
SLOW = 0.005
"""Seconds; as in servo.adapters.local_log."""
_FULL = (errno.ENOSPC, errno.EDQUOT)
_REFUSED = (*_FULL, errno.EACCES, errno.EPERM, errno.EROFS, errno.EMLINK, errno.ENOTSUP)


class LocalObjects:
    def __init__(self, disk: Disk, folder: str, new_id: Callable[[], str]) -> None:
        self._disk = disk
        self._folder = folder
        self._new_id = new_id
        self._slow = False

    def check(self) -> None:
        """Refuse a file system that lacks what the promises rest on. Once, before the first write."""
        disk = self._disk
        # The identity is in the name, so two processes may check one folder at once.
        name = f"{self._folder}/.tmp/{self._new_id()}"
        try:
            disk.make_folder(f"{self._folder}/.tmp")
            try:
                file = disk.open(name, create=True)
                assert file is not None
                file.close()
                if not disk.link(name, f"{name}.link") or disk.link(name, f"{name}.link"):
                    raise Invalid(
                        f"{self._folder} cannot be used: its file system gives one name to two"
                        " files; choose a folder on a local disk"
                    )
                if not disk.lock(f"{name}.lock", wait=False):
                    raise Invalid(
                        f"{self._folder} cannot be used: its file system refuses a lock that nobody"
                        " holds; choose a folder on a local disk"
                    )
                disk.unlock(f"{name}.lock")
            finally:
                for end in ("", ".link", ".lock"):
                    disk.remove(name + end)
        except OSError as error:
            if error.errno in _FULL:
                raise self._unavailable("write to", "", error) from error
            raise Invalid(
                f"{self._folder} cannot be used ({error.strerror or error}): Servo needs a folder it"
                " may write to, on a file system with hard links and locks; choose a folder on a"
                " local disk"
            ) from error

    async def get(self, path: str) -> bytes | None:
        file = self._open(path)
        if file is None:
            return None
        return await self._read(path, file, 0, None)

    async def get_range(self, path: str, start: int, length: int) -> bytes | None:
        if start < 0 or length < 0:
            raise Invalid(f"{path!r} has no {length} bytes from {start}; both count from 0")
        file = self._open(path)
        if file is None:
            return None
        return await self._read(path, file, start, length)

    async def head(self, path: str) -> ObjectInfo | None:
        file = self._open(path)
        if file is None:
            return None
        try:
            return ObjectInfo(path, file.size())
        except OSError as error:
            raise self._unavailable("read", path, error) from error
        finally:
            file.close()

    async def put(self, path: str, data: bytes) -> None:
        await self._store(path, data, False)

    async def put_new(self, path: str, data: bytes) -> bool:
        return await self._store(path, data, True)

    async def _store(self, path: str, data: bytes, new: bool) -> bool:
        check_path(path)
        clock = asyncio.get_running_loop().time
        started = clock()
        try:
            if self._slow or len(data) > SMALL:
                return await asyncio.to_thread(self._put, path, data, new)
            return self._put(path, data, new)
        finally:
            self._slow = clock() - started > SLOW

    async def delete(self, path: str) -> None:
        check_path(path)
        try:
            self._disk.remove(f"{self._folder}/{path}")
        except OSError as error:
            raise self._unavailable("remove", path, error) from error

    async def list(self, prefix: str) -> AsyncIterator[ObjectInfo]:
        check_prefix(prefix)
        above = prefix.rpartition("/")[0]
        folders = [f"{above}/" if above else ""]
        while folders:
            folder = folders.pop()
            try:
                names = self._disk.names(f"{self._folder}/{folder}".rstrip("/"))
            except OSError as error:
                raise self._unavailable("list", folder, error) from error
            for path in [folder + name for name in names if not name.startswith(".")]:
                if path.endswith("/"):
                    if path.startswith(prefix) or prefix.startswith(path):
                        folders.append(path)
                elif path.startswith(prefix) and (info := await self.head(path)):
                    yield info
            # A walk through many folders lets others have the loop in between.
            await asyncio.sleep(0)

    def _open(self, path: str) -> File | None:
        check_path(path)
        try:
            return self._disk.open(f"{self._folder}/{path}")
        except OSError as error:
            raise self._unavailable("read", path, error) from error

    async def _read(self, path: str, file: File, start: int, length: int | None) -> bytes:
        try:
            size = file.size()
            there = max(0, size - start)
            length = there if length is None else min(length, there)
            if length > SMALL:
                return await asyncio.to_thread(file.read, start, length)
            return file.read(start, length)
        except OSError as error:
            raise self._unavailable("read", path, error) from error
        finally:
            file.close()

    def _put(self, path: str, data: bytes, new: bool) -> bool:
        target = f"{self._folder}/{path}"
        temporary = f"{self._folder}/.tmp/{self._new_id()}"
        try:
            try:
                self._disk.make_folder(f"{self._folder}/.tmp")
                self._disk.make_folder(os.path.dirname(target))
                self._write(temporary, data)
            except (FileExistsError, NotADirectoryError) as error:
                raise Invalid(
                    f"{path!r} cannot be written to {self._folder}: a part of it is the name of an"
                    " object; choose another path"
                ) from error
            except OSError as error:
                raise self._unavailable("write", path, error) from error
            return self._name(temporary, target, path, new)
        finally:
            # What is left behind is in nobody's way, so it is no reason to fail what succeeded.
            with contextlib.suppress(OSError):
                self._disk.remove(temporary)

    def _write(self, temporary: str, data: bytes) -> None:
        file = self._disk.open(temporary, create=True)
        assert file is not None
        try:
            file.append(data)
            file.sync()
        finally:
            file.close()

    def _name(self, temporary: str, target: str, path: str, new: bool) -> bool:
        try:
            if not new:
                self._disk.rename(temporary, target)
            elif not self._disk.link(temporary, target):
                if f"{os.path.basename(target)}/" in self._disk.names(os.path.dirname(target)):
                    raise IsADirectoryError
                # Who made it may have died before this; and whoever is told that it is there builds
                # on it.
                self._disk.sync_folder(os.path.dirname(target))
                return False
            self._disk.sync_folder(os.path.dirname(target))
        except IsADirectoryError as error:
            raise Invalid(
                f"{path!r} cannot be written to {self._folder}: it is the name of a folder; choose"
                " another path"
            ) from error
        except OSError as error:
            if error.errno in _REFUSED:
                raise self._unavailable("write", path, error) from error
            raise Uncertain(
                f"nobody knows whether {path!r} was written to {self._folder} ({error}); check the"
                " disk, and read it back"
            ) from error
        return True

    def _unavailable(self, action: str, path: str, error: OSError) -> Unavailable:
        place = f"{self._folder}/{path}".rstrip("/")
        if error.errno in _FULL:
            return Unavailable(
                f"no room to {action} {place}: the disk is full; make room, then try again"
            )
        return Unavailable(f"could not {action} {place}: {error}; it did not happen, try again")
