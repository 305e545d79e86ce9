"""Stores: where the state of a workspace lies.

    {project}/.servo/{tenant}/{workspace}/    ledger/, objects/, tables/, manifests/, leader.lock

Opening a store writes nothing, so that readers work where nothing may be written. Whoever is about
to write calls `prepare` first: it makes the folder and, the first time, asks whether what is below it
keeps the promises that everything rests on.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
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
        LocalLock(disk(), f"{root}/leader.lock"),
    )


def prepare(folder: Path, tenant: str = TENANT, workspace: str = WORKSPACE) -> None:
    """Before the first write of this process: is there a folder that can hold a workspace?"""
    root = _root(folder, tenant, workspace)
    if Path(root, "ledger").is_dir():
        return
    one, two = (LocalObjects(LocalDisk(), root, system().new_id) for _ in range(2))
    one.check()
    asyncio.run(probe(one, two, system().new_id))
    # State is nobody's source code.
    ignored = folder / ".gitignore"
    with suppress(OSError):  # a courtesy
        ignored.write_text("# made by servo: state does not belong into version control\n*\n")


def exists(folder: Path, tenant: str = TENANT, workspace: str = WORKSPACE) -> bool:
    """Whether anything was ever written there."""
    return Path(_root(folder, tenant, workspace), "ledger").is_dir()


def _root(folder: Path, tenant: str, workspace: str) -> str:
    try:
        if folder.exists() and not folder.is_dir():
            raise Invalid(
                f"{folder} is a file, and Servo keeps its state in a folder of that name; move the"
                " file away"
            )
    except OSError as error:
        raise Invalid(f"{folder} cannot be used: {error.strerror}") from None
    return str(folder / workspace_prefix(tenant, workspace))


def memory_store(tenant: str = TENANT, workspace: str = WORKSPACE) -> Store:
    """A workspace that is gone when the process is."""
    return Store(tenant, workspace, MemoryLog(), MemoryObjects(), MemoryLock())


def system() -> System:
    return RealSystem()
