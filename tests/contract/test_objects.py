"""The `Objects` contract over its adapters."""

from pathlib import Path

import pytest

from servo.adapters.disk import LocalDisk
from servo.adapters.local_objects import LocalObjects
from servo.adapters.memory import MemoryObjects
from servo.adapters.system import ulid_source
from tests.contract.disks import Machine, SimulatedDisk
from tests.contract.objects import ObjectsContract, Store


class TestMemoryObjects(ObjectsContract):
    @pytest.fixture
    def store(self) -> Store:
        backing: dict[str, bytes] = {}
        return lambda: MemoryObjects(backing)


class TestLocalObjects(ObjectsContract):
    @pytest.fixture
    def store(self, tmp_path: Path) -> Store:
        return lambda: LocalObjects(LocalDisk(), str(tmp_path / "acme" / "main"), ulid_source())


class TestLocalObjectsOnASimulatedDisk(ObjectsContract):
    @pytest.fixture
    def store(self) -> Store:
        machine = Machine()
        return lambda: LocalObjects(SimulatedDisk(machine), "/w", ulid_source())
