"""The shape of a run: what its plan says about tasks and edges, in the form that the fold walks."""

from typing import NamedTuple

from servo.core.plain import from_plain
from servo.core.plan import Plan, PlannedTask
from servo.core.policies import RetryPolicy, Timeouts


class Rules(NamedTuple):
    """What all tasks of an asset share."""

    retry: RetryPolicy
    timeouts: Timeouts
    priority: int
    code_version: str


class Shape:
    """Immutable. `order` lists task keys so that upstreams come first."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.tasks: dict[str, PlannedTask] = {task.key: task for task in plan.tasks}
        self.order = [task.key for task in sorted(plan.tasks, key=lambda task: task.stage)]
        downstreams: dict[str, list[str]] = {}
        for task in plan.tasks:
            for key in task.upstreams:
                downstreams.setdefault(key, []).append(task.key)
        self.downstreams = {key: tuple(below) for key, below in downstreams.items()}
        self.edges = sum(len(task.upstreams) for task in plan.tasks)
        self._rules = {
            name: Rules(
                from_plain(asset.retry, RetryPolicy, f"the retry policy of {name}"),
                from_plain(asset.timeouts, Timeouts, f"the timeouts of {name}"),
                asset.priority,
                asset.code_version,
            )
            for name, asset in plan.assets.items()
        }

    def rules(self, task_key: str) -> Rules:
        return self._rules[self.tasks[task_key].asset]
