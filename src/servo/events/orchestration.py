"""Facts about runs: who asked for what, and what the leader decided."""

import enum
from typing import ClassVar

from servo.core.ids import queue_id
from servo.events.envelope import Fact


class Stop(enum.StrEnum):
    """Who told a run to stop."""

    USER = "user"
    SYSTEM = "system"
    TIMEOUT = "timeout"


class LeaderClaimed(Fact, frozen=True, kw_only=True):
    """A writer took over the workspace. Whoever has a lower epoch is fenced from here on."""

    domain: ClassVar[str] = "orchestration"

    epoch: int
    writer_id: str

    def key(self) -> str:
        return f"leader:{self.epoch}"


class RunTriggered(Fact, frozen=True, kw_only=True):
    """Somebody asked for a run of a plan, which lies in `plan_object`.

    `code_ref` says who can load its code: `deployment:ID`, or `process:WRITER` for functions that live
    in one process. `request_hash` is what was asked for, without what planning added: with the same
    `run_key` it must be the same.
    """

    domain: ClassVar[str] = "orchestration"

    run_id: str
    plan_object: str
    fingerprint: str
    code_ref: str
    request_hash: str
    run_key: str | None = None
    deployment_id: str | None = None

    def key(self) -> str:
        return f"run:{self.run_id}"


class RunCancelRequested(Fact, frozen=True, kw_only=True):
    """Somebody, or a rule, told a run to stop. The first request stands."""

    domain: ClassVar[str] = "orchestration"

    run_id: str
    by: Stop = Stop.USER
    message: str = ""

    def key(self) -> str:
        return f"cancel:{self.run_id}:{self.by}"


class DispatchRequested(Fact, frozen=True, kw_only=True):
    """The leader asks for an attempt. `worker` says where it runs: `process:WRITER` for one that
    dies with that process."""

    domain: ClassVar[str] = "orchestration"

    run_id: str
    task_key: str
    attempt: int
    worker: str

    def key(self) -> str:
        return dispatch_id(self.run_id, self.task_key, self.attempt)


class TaskReused(Fact, frozen=True, kw_only=True):
    """The leader decided that a task need not run: an existing version stands for it."""

    domain: ClassVar[str] = "orchestration"

    run_id: str
    task_key: str
    materialization_id: str
    reason: str

    def key(self) -> str:
        return f"reused:{self.run_id}:{self.task_key}"


def dispatch_id(run_id: str, task_key: str, attempt: int) -> str:
    return f"dispatch:{run_id}:{task_key}:{attempt}"


def attempt_id(run_id: str, task_key: str, attempt: int) -> str:
    """The same wherever it is computed: two leaders that ask for one attempt ask for one."""
    return queue_id("a", dispatch_id(run_id, task_key, attempt))


FACTS: tuple[type[Fact], ...] = (
    LeaderClaimed,
    RunTriggered,
    RunCancelRequested,
    DispatchRequested,
    TaskReused,
)
