"""Anti-entropy: what can never go on by itself.

An attempt that ran inside an engine's process is gone with it; where the operating system's lock says
that no other engine lives, that is known at once and need not wait for a deadline. A run whose code
nobody could load for half a day is told to stop, because its submitter will not come back. Held by
tests/unit/test_controllers.py and tests/invariants/test_invariants.py.
"""

from servo.control.deadlines import give_up
from servo.control.moment import Moment
from servo.core.failures import FailureCode, TaskFailure
from servo.events.envelope import Fact
from servo.events.execution import Outcome
from servo.events.orchestration import RunCancelRequested, Stop
from servo.fold.records import Task
from servo.fold.state import State

PROCESS = "process:"
CODE_WAIT_US = 12 * 3_600_000_000
MAX_VANISHED = 3
"""How many attempts of a task may be interrupted before one that vanishes counts as its own fault:
code that kills its process would otherwise run for ever."""


def anti_entropy(view: State, moment: Moment) -> list[Fact]:
    intents: list[Fact] = []
    if not moment.fresh:
        return intents
    for run in view.active_runs():
        trigger = run.run.trigger
        if moment.alone:
            for key in sorted(run.open):
                attempt = run.tasks[key].current
                assert attempt is not None
                if _lived_in(attempt.worker) and attempt.worker != moment.worker:
                    failure = _vanished(run.tasks[key])
                    intents.append(give_up(run.run_id, key, attempt, failure))
        if (
            trigger is not None
            and run.run.stop is None
            and not run.open
            and not moment.loads(trigger.code_ref)
            and moment.now - max(run.run.last[2], moment.listening_since) > CODE_WAIT_US
        ):
            intents.append(
                RunCancelRequested(
                    run_id=run.run_id,
                    by=Stop.SYSTEM,
                    message=f"Nobody could load its code ({trigger.code_ref}) for 12 hours.",
                )
            )
    return intents


def _lived_in(worker: str | None) -> bool:
    return worker is not None and worker.startswith(PROCESS)


def _vanished(task: Task) -> TaskFailure:
    times = sum(1 for a in task.attempts if a.result and a.result.outcome is Outcome.INTERRUPTED)
    if times >= MAX_VANISHED:
        return TaskFailure(
            code=FailureCode.WORKER_CRASH,
            message="The process that ran it ended without a result, after"
            f" {times} attempts that were interrupted.",
        )
    return TaskFailure(
        code=FailureCode.INTERRUPTED,
        message="The process that ran it ended without a result.",
    )
