"""The few things that a local folder is asked to do.

The seam under the local adapters: the real disk, a disk that runs full, one that kills the process
between two calls, and one that forgets at a power cut what was not synced. Calls block; they are
short. Errors are the operating system's (`OSError`); the adapters say what they mean.

What survives: bytes of a file after its `sync`; the name of a file after `sync_folder` of its folder.
"""

from typing import Protocol


class File(Protocol):
    """An open file. Two handles of one file see each other's bytes at once."""

    def size(self) -> int: ...

    def read(self, start: int, length: int) -> bytes: ...

    def append(self, data: bytes) -> None:
        """Write all of it at the end. When it fails, a part may be there."""
        ...

    def truncate(self, size: int) -> None: ...

    def sync(self) -> None:
        """Return when the bytes would survive a power cut."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    """Paths are absolute strings."""

    def open(self, path: str, *, create: bool = False) -> File | None:
        """The file, or None if there is none. `create`: make an empty one if needed."""
        ...

    def link(self, source: str, target: str) -> bool:
        """Give a file a second name. False: the name is taken, and nothing changed."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Replace `target`, if there is one, in one step."""
        ...

    def remove(self, path: str) -> None:
        """Also of what is not there."""
        ...

    def names(self, folder: str) -> list[str]:
        """The names in a folder; those of folders end in `/`. Empty if there is no such folder."""
        ...

    def make_folder(self, folder: str) -> None:
        """With those above it; durable when it returns."""
        ...

    def sync_folder(self, folder: str) -> None: ...

    def lock(self, path: str, *, wait: bool) -> bool:
        """Take the exclusive lock named by a file, for this Disk object. `wait`: until it is free.
        The operating system lets go of it when the process dies. True too if it is held already."""
        ...

    def unlock(self, path: str) -> None: ...
