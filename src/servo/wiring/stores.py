"""Stores: where the state of a workspace lies.

    {project}/.servo/{tenant}/{workspace}/    ledger/, objects/, tables/, manifests/, leader.lock

Opening a store writes nothing, so that readers work where nothing may be written. Whoever is about
to write calls `prepare` first: it makes the folder and asks whether what is below it
keeps the promises that everything rests on.
"""

import asyncio
import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from servo.adapters.disk import LocalDisk
from servo.adapters.local_lock import LocalLock
from servo.adapters.local_log import LocalLog
from servo.adapters.local_objects import LocalObjects
from servo.adapters.memory import MemoryLock, MemoryLog, MemoryObjects
from servo.adapters.system import RealSystem
from servo.core.paths import workspace_prefix
from servo.errors import Invalid
from servo.ledger.probe import probe
from servo.ports.disk import Disk
from servo.ports.store import Store
from servo.ports.system import System

FOLDER = ".servo"
TENANT = "local"
WORKSPACE = "main"
LEADER = "leader.lock"


def open_store(folder: Path, tenant: str = TENANT, workspace: str = WORKSPACE) -> Store:
    """The store of a workspace in a local folder, which need not be there yet."""
    return store_on(LocalDisk, _root(folder, tenant, workspace), system().new_id, tenant, workspace)


def store_on(
    disk: Callable[[], Disk],
    root: str,
    new_id: Callable[[], str],
    tenant: str = TENANT,
    workspace: str = WORKSPACE,
) -> Store:
    """The store of a workspace in a folder of some disk."""
    # A disk of its own for each: locks belong to the disk object that took them.
    return Store(
        tenant,
        workspace,
        LocalLog(disk(), root),
        LocalObjects(disk(), root, new_id),
        LocalLock(disk(), f"{root}/{LEADER}"),
    )


def prepare(folder: Path, tenant: str = TENANT, workspace: str = WORKSPACE) -> None:
    """Before the first write of this process: is there a folder that can hold a workspace? Asked at
    every start, because a folder may have been moved to another kind of disk since the last."""
    root = _root(folder, tenant, workspace)
    new = not exists(folder, tenant, workspace)
    one, two = (LocalObjects(LocalDisk(), root, system().new_id) for _ in range(2))
    if new:
        one.check()
    asyncio.run(probe(one, two, system().new_id))
    if not new:
        return
    # State is nobody's source code.
    ignored = folder / ".gitignore"
    with suppress(OSError):  # a courtesy
        ignored.write_text("# made by servo: state does not belong into version control\n*\n")


def exists(folder: Path, tenant: str = TENANT, workspace: str = WORKSPACE) -> bool:
    """Whether anything was ever written there."""
    with _looking_at(folder):
        return Path(_root(folder, tenant, workspace), "ledger").is_dir()


def is_led(folder: Path, tenant: str = TENANT, workspace: str = WORKSPACE) -> bool:
    """Whether a process leads there at this moment. It only looks: a shared lock, for an instant, on
    a file that must be there already."""
    path = Path(_root(folder, tenant, workspace), LEADER)
    with _looking_at(path):
        try:
            descriptor = os.open(path, os.O_RDONLY)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(descriptor)
    return False


def _root(folder: Path, tenant: str, workspace: str) -> str:
    with _looking_at(folder):
        if folder.exists() and not folder.is_dir():
            raise Invalid(
                f"{folder} is a file, and Servo keeps its state in a folder of that name; move the"
                " file away"
            )
    return str(folder / workspace_prefix(tenant, workspace))


@contextmanager
def _looking_at(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Invalid(
            f"{path} cannot be used: {error.strerror}; give yourself access to it"
        ) from None


def memory_store(tenant: str = TENANT, workspace: str = WORKSPACE) -> Store:
    """A workspace that is gone when the process is."""
    return Store(tenant, workspace, MemoryLog(), MemoryObjects(), MemoryLock())


def system() -> System:
    return RealSystem()
