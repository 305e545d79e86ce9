"""Facts about attempts and what they made: reports of workers."""

import enum
from typing import Annotated, ClassVar

import msgspec

from servo.core.failures import TaskFailure
from servo.events.envelope import Fact

Int64 = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""What a column can hold: a number beyond it is refused before it is a fact."""


class Outcome(enum.StrEnum):
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    INTERRUPTED = "interrupted"


class TaskStarted(Fact, frozen=True, kw_only=True):
    """A worker began. It need not be written before user code runs: a result implies it."""

    domain: ClassVar[str] = "execution"

    run_id: str
    task_key: str
    attempt: Int64
    attempt_id: str
    worker_id: str

    def key(self) -> str:
        return f"started:{self.attempt_id}"


class TaskHeartbeat(Fact, frozen=True, kw_only=True):
    """A worker is alive. At most one is written per task and half timeout; the rest stay in memory."""

    domain: ClassVar[str] = "execution"

    run_id: str
    task_key: str
    attempt: Int64
    attempt_id: str

    def key(self) -> str:
        return f"heartbeat:{self.attempt_id}"


class TaskFinished(Fact, frozen=True, kw_only=True):
    """An attempt ended. `retriable` is what the failure's code called for when it was written, so
    that a later table of codes never rewrites history."""

    domain: ClassVar[str] = "execution"

    run_id: str
    task_key: str
    attempt: Int64
    attempt_id: str
    outcome: Outcome
    error: TaskFailure | None = None
    retriable: bool = False
    started_at: Int64 | None = None
    """Microseconds since 1970 by the worker's clock."""
    duration_us: Int64 = 0
    cpu_us: Int64 | None = None
    worker_id: str | None = None

    def key(self) -> str:
        return f"finished:{self.attempt_id}"


class File(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A file of a version, relative to the workspace."""

    path: str
    sha256: str
    bytes: Int64
    rows: Int64 | None = None


class MaterializationCompleted(Fact, frozen=True, kw_only=True):
    """An attempt made a version of an asset's partition. It counts if the attempt does."""

    domain: ClassVar[str] = "execution"

    materialization_id: str
    run_id: str
    task_key: str
    attempt: Int64
    asset_id: str
    asset_key: str
    partition_key: str = ""
    code_version: str
    files: tuple[File, ...] = ()
    row_count: Int64 | None = None
    byte_size: Int64 = 0
    schema_hash: str | None = None

    def key(self) -> str:
        return f"materialization:{self.materialization_id}"


FACTS: tuple[type[Fact], ...] = (
    TaskStarted,
    TaskHeartbeat,
    TaskFinished,
    MaterializationCompleted,
)
