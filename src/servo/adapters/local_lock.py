"""The lock of a local folder: `servo.ports.lock.Lock` on a file that is there for nothing else.

The file stays when the lock is let go: removing it could pull it from under one who just opened it.
The lock belongs to the `Disk` object, as every lock of it does: two holders need two of them.
"""

import os.path

from servo.errors import Unavailable
from servo.ports.disk import Disk


class LocalLock:
    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path
        self._held = False

    def acquire(self) -> bool:
        try:
            if not self._held:
                self._disk.make_folder(os.path.dirname(self._path))
                self._held = self._disk.lock(self._path, wait=False)
        except OSError as error:
            raise Unavailable(
                f"could not lock {self._path}: {error}; Servo needs a folder it may write to, on a"
                " file system with locks"
            ) from error
        return self._held

    def release(self) -> None:
        if self._held:
            self._held = False
            self._disk.unlock(self._path)
