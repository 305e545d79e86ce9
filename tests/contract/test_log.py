"""The `Log` contract over its adapters; local ones with small files too, so that they roll."""

from pathlib import Path

import pytest

from servo.adapters.disk import LocalDisk
from servo.adapters.local_log import LocalLog
from servo.adapters.memory import MemoryLog
from tests.contract.disks import Machine, SimulatedDisk
from tests.contract.log import LogContract, Store


class TestMemoryLog(LogContract):
    @pytest.fixture
    def store(self) -> Store:
        backing: list[bytes] = []
        return lambda: MemoryLog(backing)


class TestLocalLog(LogContract):
    @pytest.fixture(params=[None, 1, 2000], ids=["one file", "a file each", "a few files"])
    def store(self, tmp_path: Path, request: pytest.FixtureRequest) -> Store:
        folder = str(tmp_path / "acme" / "main")
        if request.param is None:
            return lambda: LocalLog(LocalDisk(), folder)
        return lambda: LocalLog(LocalDisk(), folder, file_bytes=request.param)


class TestLocalLogOnASimulatedDisk(LogContract):
    @pytest.fixture
    def store(self) -> Store:
        machine = Machine()
        return lambda: LocalLog(SimulatedDisk(machine), "/w", file_bytes=2000)
