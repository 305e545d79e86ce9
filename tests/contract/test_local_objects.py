"""What the local store and lock do beyond the contract: crashes, full disks, other processes."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from servo.adapters.disk import LocalDisk
from servo.adapters.local_lock import LocalLock
from servo.adapters.local_objects import LocalObjects
from servo.adapters.memory import MemoryLock
from servo.adapters.system import ulid_source
from servo.errors import Invalid, Unavailable, Uncertain
from servo.ports.lock import Lock
from tests.contract.disks import Killed, Machine, SimulatedDisk
from tests.contract.objects import listed, run


def simulated(machine: Machine) -> LocalObjects:
    return LocalObjects(SimulatedDisk(machine), "/w", ulid_source())


def real(folder: Path) -> LocalObjects:
    return LocalObjects(LocalDisk(), str(folder), ulid_source())


# ---------------------------------------------------------------- writing


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("new", [True, False])
def test_crash_at_every_call_leaves_the_whole_object_or_none(when: str, new: bool) -> None:
    async def crash_at(call: int) -> bool:
        machine = Machine()
        objects = simulated(machine)
        await objects.put("m/1", b"old" * 100)
        path = "m/2" if new else "m/1"
        machine.kill_at(call, when)
        try:
            await (objects.put_new if new else objects.put)(path, b"new" * 100)
            answered = True
        except Killed:
            answered = False
        machine.fault = None
        allowed = {b"new" * 100} if answered else {b"new" * 100, None if new else b"old" * 100}
        assert await simulated(machine).get(path) in allowed
        machine.power_cut(keep=7)
        assert await simulated(machine).get(path) in allowed
        assert {info.path for info in await listed(simulated(machine), "")} <= {"m/1", "m/2"}
        # What was left behind is in nobody's way.
        await simulated(machine).put(path, b"again")
        assert await simulated(machine).get(path) == b"again"
        return not answered

    call = 0
    while run(crash_at(call)):
        call += 1
    assert call > 3


@pytest.mark.parametrize("call", ["create", "append", "sync"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_failure_before_an_object_has_its_name_means_it_did_not_happen(
    call: str, when: str
) -> None:
    async def work() -> None:
        machine = Machine()
        objects = simulated(machine)
        for put in (objects.put, objects.put_new):
            machine.fail(call, when)
            with pytest.raises(Unavailable, match="could not write /w/m/1") as refusal:
                await put("m/1", b"x")
            assert not isinstance(refusal.value, Uncertain)
            assert await objects.get("m/1") is None
        assert machine.files == {}

    run(work())


@pytest.mark.parametrize(
    ("call", "when"), [("link", "before"), ("link", "after"), ("sync_folder", "before")]
)
def test_failure_while_an_object_gets_its_name_is_uncertain(call: str, when: str) -> None:
    async def work() -> None:
        machine = Machine()
        objects = simulated(machine)
        machine.fail(call, when)
        with pytest.raises(Uncertain, match="nobody knows whether 'm/1' was written"):
            await objects.put_new("m/1", b"x")
        landed = await objects.get("m/1") is not None
        assert await objects.put_new("m/1", b"x") is not landed
        assert await objects.get("m/1") == b"x"

    run(work())


def test_full_disk_is_said_and_leaves_no_trace() -> None:
    async def work() -> None:
        machine = Machine(room=10)
        objects = simulated(machine)
        for put in (objects.put, objects.put_new):
            with pytest.raises(Unavailable, match="/w/m/1: the disk is full; make room"):
                await put("m/1", b"x" * 11)
        assert machine.files == {}
        assert await objects.put_new("m/1", b"x" * 10)

    run(work())


def test_failure_to_remove_the_other_name_does_not_fail_what_succeeded() -> None:
    async def work() -> None:
        machine = Machine()
        machine.fail("remove", "before")
        assert await simulated(machine).put_new("m/1", b"x")
        assert {info.path for info in await listed(simulated(machine), "")} == {"m/1"}

    run(work())


def test_name_is_an_object_or_a_folder_and_never_both(tmp_path: Path) -> None:
    async def work() -> None:
        objects = real(tmp_path)
        await objects.put("a/b", b"1")
        for put in (objects.put, objects.put_new):
            with pytest.raises(Invalid, match=r"'a' cannot be written .* the name of a folder"):
                await put("a", b"2")
            for path in ("a/b/c", "a/b/c/d"):
                with pytest.raises(Invalid, match="a part of it is the name of an object"):
                    await put(path, b"2")
        assert {info.path for info in await listed(objects, "")} == {"a/b"}

    run(work())


def test_nothing_is_left_in_the_folder_for_unfinished_objects(tmp_path: Path) -> None:
    async def work() -> None:
        objects = real(tmp_path)
        objects.check()
        await objects.put("a", b"1")
        await objects.put_new("b", b"1")
        await objects.put_new("b", b"2")
        assert os.listdir(tmp_path / ".tmp") == []

    run(work())


def test_object_in_a_folder_that_may_only_be_read_is_read(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    (tmp_path / "a").chmod(0o444)
    assert run(real(tmp_path).get("a")) == b"1"


# ---------------------------------------------------------------- the file system


def test_good_folder_passes_the_check_and_is_made(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "one"
    real(folder).check()
    assert folder.is_dir()


@pytest.mark.parametrize("missing", ["link", "lock"])
def test_file_system_without_links_or_locks_is_refused_by_name(missing: str) -> None:
    class Poor(SimulatedDisk):
        def link(self, source: str, target: str) -> bool:
            if missing == "link":
                raise OSError(errno.EPERM, "Operation not permitted")
            return super().link(source, target)

        def lock(self, path: str, *, wait: bool) -> bool:
            if missing == "lock":
                raise OSError(errno.ENOLCK, "No locks available")
            return super().lock(path, wait=wait)

    machine = Machine()
    with pytest.raises(Invalid, match=r"^/w cannot be used \(.*hard links and locks; choose"):
        LocalObjects(Poor(machine), "/w", ulid_source()).check()
    assert machine.files == {}


def test_file_system_that_replaces_on_link_is_refused() -> None:
    class Poor(SimulatedDisk):
        def link(self, source: str, target: str) -> bool:
            super().link(source, target)
            return True

    with pytest.raises(Invalid, match="gives one name to two files"):
        LocalObjects(Poor(Machine()), "/w", ulid_source()).check()


def test_folder_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Invalid, match=r"cannot be used .*a folder it may write to"):
        real(tmp_path / "file").check()


def test_full_disk_is_no_reason_to_choose_another_folder() -> None:
    machine = Machine()
    machine.fail("create", "before", OSError(errno.ENOSPC, "No space left on device"))
    with pytest.raises(Unavailable, match="no room to write to /w: the disk is full"):
        simulated(machine).check()


# ---------------------------------------------------------------- the real disk


def test_folders_are_made_with_those_above_them(tmp_path: Path) -> None:
    LocalDisk().make_folder(str(tmp_path / "a" / "b" / "c"))
    LocalDisk().make_folder(str(tmp_path / "a" / "b" / "c"))
    assert (tmp_path / "a" / "b" / "c").is_dir()


def test_names_of_folders_end_in_a_slash(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    assert sorted(LocalDisk().names(str(tmp_path))) == ["file", "folder/"]
    assert LocalDisk().names(str(tmp_path / "file")) == []
    assert LocalDisk().names(str(tmp_path / "none")) == []


def test_short_writes_and_reads_are_continued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write, read = os.write, os.pread
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, bytes(data)[:7]))
    monkeypatch.setattr(os, "pread", lambda fd, size, at: read(fd, min(size, 5), at))
    file = LocalDisk().open(str(tmp_path / "x"), create=True)
    assert file is not None
    file.append(b"0123456789" * 5)
    assert file.read(0, 50) == b"0123456789" * 5
    assert file.read(45, 99) == b"56789"
    assert file.size() == 50


# ---------------------------------------------------------------- locks


def pair_of_locks(kind: str, folder: Path) -> tuple[Lock, Lock]:
    if kind == "memory":
        backing: list[object] = []
        return MemoryLock(backing), MemoryLock(backing)
    if kind == "simulated":
        machine = Machine()
        a, b = (LocalLock(SimulatedDisk(machine), "/w/lock") for _ in range(2))
        return a, b
    path = str(folder / "w" / "lock")
    return LocalLock(LocalDisk(), path), LocalLock(LocalDisk(), path)


@pytest.mark.parametrize("kind", ["memory", "simulated", "local"])
def test_lock_has_one_holder(kind: str, tmp_path: Path) -> None:
    a, b = pair_of_locks(kind, tmp_path)
    assert a.acquire()
    assert a.acquire()
    assert not b.acquire()
    b.release()
    assert not b.acquire()
    a.release()
    assert b.acquire()
    assert not a.acquire()


_HOLDER = """
import os, sys
from servo.adapters.disk import LocalDisk
from servo.adapters.local_lock import LocalLock
lock = LocalLock(LocalDisk(), sys.argv[1])
assert lock.acquire()
if sys.argv[2] == "alone" or os.fork() == 0:
    print("held", flush=True)  # by the child, if there is one: then it is known to run
os.read(0, 1)  # until it is killed, or its input ends
"""


@pytest.mark.parametrize("children", ["alone", "fork"])
def test_lock_is_free_when_its_holder_is_killed(tmp_path: Path, children: str) -> None:
    path = str(tmp_path / "lock")
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDER, path, children],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert holder.stdin and holder.stdout
    lock = LocalLock(LocalDisk(), path)
    try:
        assert holder.stdout.readline() == b"held\n"
        assert not lock.acquire()
        holder.kill()
        holder.wait()
        # Also while a child that it forked lives on.
        assert lock.acquire()
    finally:
        holder.kill()
        holder.stdin.close()
        holder.stdout.close()


def test_folder_that_cannot_be_locked_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(Unavailable, match=f"could not lock {tmp_path}/file/lock"):
        LocalLock(LocalDisk(), str(tmp_path / "file" / "lock")).acquire()
