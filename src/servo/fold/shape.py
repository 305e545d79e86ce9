"""The shape of a run: what its plan says about tasks and edges, in the form that the fold walks."""

from collections.abc import Mapping
from typing import Any, NamedTuple, TypeVar

import msgspec

from servo.core.plain import from_plain
from servo.core.plan import Plan, PlannedTask
from servo.core.policies import RetryPolicy, Timeouts

T = TypeVar("T")


class Rules(NamedTuple):
    """What all tasks of an asset share."""

    retry: RetryPolicy
    timeouts: Timeouts
    priority: int
    code_version: str
    look_us: int
    """How long after a task was dispatched or began it is to be looked at for the first time: no
    deadline of an attempt comes sooner."""


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
        rules: dict[str, Rules] = {}
        retries, timeouts = _Reader(RetryPolicy), _Reader(Timeouts)
        for name, asset in plan.assets.items():
            limits = timeouts.read(asset.timeouts, f"the timeouts of {name}")
            rules[name] = Rules(
                retries.read(asset.retry, f"the retry policy of {name}"),
                limits,
                asset.priority,
                asset.code_version,
                min(limits.dispatch_ack_ms, limits.heartbeat_ms) * 1000,
            )

        self._rules = {task.key: rules[task.asset] for task in plan.tasks}

    def rules(self, task_key: str) -> Rules:
        return self._rules[task_key]


class _Reader:
    """Reads policies. Thousands of assets share a few, so each is read once: by identity where a
    plan was made here, by its spelling where it was read from an object."""

    def __init__(self, kind: type[T]) -> None:
        self._kind: type[Any] = kind
        self._by_id: dict[int, Any] = {}
        self._by_spelling: dict[bytes, Any] = {}

    def read(self, data: Mapping[str, Any], what: str) -> Any:
        found = self._by_id.get(id(data))
        if found is None:
            spelling = _encode(data)
            found = self._by_spelling.get(spelling)
            if found is None:
                found = self._by_spelling[spelling] = from_plain(data, self._kind, what)
            self._by_id[id(data)] = found  # the plan keeps `data` alive, and so its id
        return found


_encode = msgspec.json.Encoder().encode
