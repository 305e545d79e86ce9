"""Plans as text for a terminal."""

from datetime import datetime

import click

from servo.core.definitions import Manifest
from servo.core.keys import AssetKey, PartitionKey
from servo.core.partitions import PartitionSet
from servo.core.plan import Plan, PlanDiff, PlannedTask

EACH = 30
"""Up to so many tasks, each has its line; beyond, each asset has one."""


def show_plan(plan: Plan, manifest: Manifest, now: datetime) -> str:
    count = len(plan.tasks)
    lines = [
        click.style(f"{_number(count, 'task')} in {_number(plan.stages(), 'stage')}", bold=True)
        + f", planned for {now:%Y-%m-%d %H:%M} UTC",
        click.style(plan.fingerprint[: len("v1:sha256:") + 16] + "…", dim=True),
    ]
    names = _Names(manifest, plan, now)
    groups: dict[tuple[int, str], list[PlannedTask]] = {}
    for task in plan.tasks:
        groups.setdefault((task.stage, task.asset), []).append(task)
    width = max((len(names.asset(t.asset)) for t in plan.tasks), default=0)
    stage = -1
    for (at, asset), tasks in sorted(groups.items()):
        if at != stage:
            stage = at
            lines += ["", click.style(f"stage {stage + 1}", dim=True)]
        shown = tasks if count <= EACH else tasks[:1]
        for task in shown:
            what = names.partitions([task] if count <= EACH else tasks)
            head = f"  {click.style(names.asset(asset).ljust(width), fg='cyan')}"
            lines.append(f"{head}  {what}" if what else head)
            lines.append(f"  {' ' * width}  {click.style(_why(task), dim=True)}")
    unmet = list(plan.unmet())
    if unmet:
        task, given = unmet[0]
        lines += [
            "",
            click.style(f"{_number(len(unmet), 'input')} will be missing", fg="yellow")
            + f": {names.asset(task.asset)} needs {names.asset(given.asset)}"
            + (f" [{names.label(given.asset, given.partition)}]" if given.partition else "")
            + f", which has no version and is not planned; select it too: '+{names.asset(task.asset)}'",
        ]
    return "\n".join(lines)


def show_diff(diff: PlanDiff, against: str) -> str:
    if not diff:
        return f"The same work as {against}."
    lines = []
    for sign, colour, keys in (("+", "green", diff.added), ("-", "red", diff.removed)):
        lines += [click.style(f"{sign} {key}", fg=colour) for key in keys]
    for change in diff.changed:
        lines.append(click.style(f"~ {change.key}", fg="yellow"))
        lines += [f"    {why}" for why in change.why]
    lines.append(
        f"{len(diff.added)} added, {len(diff.removed)} removed, {len(diff.changed)} changed"
        f" since {against}."
    )
    return "\n".join(lines)


class _Names:
    """Assets and partitions as people read them."""

    def __init__(self, manifest: Manifest, plan: Plan, now: datetime) -> None:
        self._spaces: dict[str, PartitionSet] = {
            asset.key.canonical: asset.partitions.keys(now)
            for asset in manifest.assets
            if asset.partitions is not None
        }

    def asset(self, canonical: str) -> str:
        return str(AssetKey.parse(canonical))

    def label(self, asset: str, partition: str) -> str:
        return self._spaces[asset].label(PartitionKey.parse(partition))

    def partitions(self, tasks: list[PlannedTask]) -> str:
        keys = [task.partition for task in tasks if task.partition is not None]
        if not keys:
            return ""
        first = self.label(tasks[0].asset, keys[0])
        if len(keys) == 1:
            return first
        return f"{len(keys):,} partitions, {first} … {self.label(tasks[0].asset, keys[-1])}"


def _why(task: PlannedTask) -> str:
    text = "; ".join(task.reasons)
    if task.upstreams:
        text += f"; waits for {_number(len(task.upstreams), 'task')}"
    return text


def _number(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
