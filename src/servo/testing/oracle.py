"""The oracle: what facts mean, told a second time, in the plainest way there is.

The fold is judged by nobody if whoever audits a world folds with the same code. So the few rules that
nothing may break are written down here again, without joins, overlays, loading or indexes, over facts
in the order of the ledger. It knows of each task how it stands:

    asked       the highest attempt that was asked for
    ended       how that attempt ended: the first result of it that counts, None while it is at work
    succeeded   whether the task has, which is for ever

Whatever an attempt reports that is not the asked one means nothing (INV-8), and neither does a second
result.
"""

from collections.abc import Mapping

import msgspec

from servo.core.plain import from_plain
from servo.core.plan import Plan, PlannedTask
from servo.core.policies import RetryPolicy
from servo.events.envelope import Fact
from servo.events.execution import Outcome, TaskFinished
from servo.events.orchestration import DispatchRequested, RunCancelRequested, RunTriggered


class TaskSeen(msgspec.Struct):
    planned: PlannedTask
    most: int
    """How many attempts may fail."""
    asked: int = 0
    ended: Outcome | None = None
    succeeded: bool = False
    failed: int = 0
    """Attempts that ended without success and were not merely interrupted."""


class RunSeen(msgspec.Struct):
    trigger: RunTriggered
    tasks: Mapping[str, TaskSeen]
    stopped: bool = False


class Oracle:
    def __init__(self) -> None:
        self.runs: dict[str, RunSeen] = {}
        self._keys: dict[str, str] = {}

    def hear(self, fact: Fact, plan: Plan | None = None) -> str | None:
        """One more fact; a sentence if it is one that nobody may write. `plan`: of a trigger."""
        match fact:
            case RunTriggered():
                self._triggered(fact, plan)
            case RunCancelRequested(run_id=run_id) if run_id in self.runs:
                self.runs[run_id].stopped = True
            case DispatchRequested():
                return self._asked(fact)
            case TaskFinished():
                self._finished(fact)
        return None

    def _triggered(self, fact: RunTriggered, plan: Plan | None) -> None:
        owner = self._keys.setdefault(fact.run_key or fact.run_id, fact.run_id)
        if owner != fact.run_id or fact.run_id in self.runs:
            return  # its key stands for another run, so this one is none
        assert plan is not None
        most = {
            name: from_plain(asset.retry, RetryPolicy, "a retry policy").max_attempts
            for name, asset in plan.assets.items()
        }
        tasks = {task.key: TaskSeen(task, most[task.asset]) for task in plan.tasks}
        self.runs[fact.run_id] = RunSeen(fact, tasks)

    def _asked(self, fact: DispatchRequested) -> str | None:
        run = self.runs.get(fact.run_id)
        task = run.tasks.get(fact.task_key) if run is not None else None
        if run is None or task is None:
            return "a task that does not exist"
        if fact.attempt <= task.asked:
            return f"attempt {fact.attempt}, though attempt {task.asked} was asked for before"
        if run.stopped:
            return "a task of a run that was told to stop"
        if (why := self.unmet(fact.run_id, fact.task_key)) is not None:
            return why
        if task.succeeded:
            return "a task that has succeeded"
        if task.asked and task.ended is None:
            return f"attempt {fact.attempt} while attempt {task.asked} is at work"
        if task.failed >= task.most:
            return f"attempt {fact.attempt}, after {task.failed} that failed"
        task.asked, task.ended = fact.attempt, None
        return None

    def _finished(self, fact: TaskFinished) -> None:
        run = self.runs.get(fact.run_id)
        task = run.tasks.get(fact.task_key) if run is not None else None
        if run is None or task is None or fact.attempt != task.asked or task.ended is not None:
            return
        task.ended = fact.outcome
        # Who ends after the stop ends cancelled, whatever it made.
        task.succeeded = fact.outcome is Outcome.SUCCEEDED and not run.stopped
        task.failed += fact.outcome not in (Outcome.SUCCEEDED, Outcome.INTERRUPTED)

    def unmet(self, run_id: str, task_key: str) -> str | None:
        """Which task a task needs and does not have yet, in words."""
        run = self.runs[run_id]
        for above in run.tasks[task_key].planned.upstreams:
            if not run.tasks[above].succeeded:
                return f"{task_key}, which needs {above}, which has not succeeded"
        return None

    def succeeded(self, run_id: str) -> set[str]:
        return {key for key, task in self.runs[run_id].tasks.items() if task.succeeded}
