"""Plans as text for a terminal. Pure; whoever prints decides whether the colours stay."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import click

from servo.core.definitions import Manifest
from servo.core.keys import AssetKey, PartitionKey, spell_scalar
from servo.core.keysets import PartitionSet
from servo.core.plan import Plan, PlanDiff, PlannedTask

EACH = 30
"""Up to so many tasks, each has its line; beyond, each asset has one."""
REASONS = 3
"""Where an asset has one line: up to so many reasons have a line each, beyond that the first."""

COLUMNS = 100
"""What is longer than this gets a second line."""

Reasons = tuple[str, ...]


def show_plan(plan: Plan, manifest: Manifest, now: datetime) -> str:
    names = _Names(manifest, now)
    count = len(plan.tasks)
    title = f"{number(count, 'task')} in {number(plan.stages(), 'stage')}" if count else "No tasks"
    lines = [
        f"{click.style(title, bold=True)}, planned for {now:%Y-%m-%d %H:%M} UTC",
        click.style(plan.fingerprint[: len("v1:sha256:") + 16] + "…", dim=True),
    ]
    common = _common_reasons(plan.tasks)
    if common:
        lines.append(click.style(f"each: {'; '.join(common)}", dim=True))
    width = max((len(names.asset(task.asset)) for task in plan.tasks), default=0)
    assets = {task.key: task.asset for task in plan.tasks}
    stage = -1
    for (at, asset), tasks in _groups(plan.tasks).items():
        if at != stage:
            stage = at
            lines += ["", click.style(f"stage {stage + 1}", dim=True)]
        right: list[str] = []
        for reasons, some in _by_reasons(tasks, common, each=count <= EACH).items():
            shown = [[task] for task in some] if count <= EACH else [some]
            column = [line for part in shown for line in names.partitions(part)]
            why = [click.style("; ".join(reasons), dim=True)] if reasons else []
            beside = "  ".join([*column, *why])
            fits = len(column) == 1 and width + 4 + len(click.unstyle(beside)) <= COLUMNS
            right += [beside] if fits else [*column, *why]
        after = sorted({names.asset(assets[key]) for task in tasks for key in task.upstreams})
        if after:
            right.append(click.style(f"after {', '.join(after)}", dim=True))
        lines += _beside(names.asset(asset), width, right)
    return "\n".join([*lines, *_remarks(plan, names)])


def _common_reasons(tasks: tuple[PlannedTask, ...]) -> Reasons:
    """The reasons that all tasks have; said once, not on every line."""
    each = list({task.reasons: None for task in tasks})
    if len(tasks) < 2:
        return ()
    return tuple(reason for reason in each[0] if all(reason in other for other in each))


def _groups(tasks: Iterable[PlannedTask]) -> dict[tuple[int, str], list[PlannedTask]]:
    """Tasks by stage and asset, in this order."""
    groups: dict[tuple[int, str], list[PlannedTask]] = {}
    for task in tasks:
        groups.setdefault((task.stage, task.asset), []).append(task)
    return dict(sorted(groups.items()))


def _by_reasons(
    tasks: list[PlannedTask], common: Reasons, *, each: bool
) -> Mapping[Reasons, list[PlannedTask]]:
    """Tasks by what is special about them."""
    groups: dict[Reasons, list[PlannedTask]] = {}
    for task in tasks:
        special = tuple(reason for reason in task.reasons if reason not in common)
        groups.setdefault(special, []).append(task)
    if each or len(groups) <= REASONS:
        return groups
    first = next(iter(groups))
    return {(*first, f"or one of {len(groups) - 1:,} other reasons"): tasks}


def _beside(name: str, width: int, right: list[str]) -> list[str]:
    """A name, and beside it a column of lines."""
    styled = click.style(name, fg="cyan")
    if not right:
        return [f"  {styled}"]
    head = f"  {styled}{' ' * (width - len(name))}  {right[0]}"
    return [head, *(f"{' ' * (width + 4)}{line}" for line in right[1:])]


def _remarks(plan: Plan, names: "_Names") -> list[str]:
    remarks = []
    if plan.idle:
        idle = ", ".join(names.asset(asset) for asset in plan.idle)
        remarks.append(f"no partitions to make: {idle}")
    unmet = list(plan.unmet())
    if unmet:
        task, given = unmet[0]
        partition = f" [{names.label(given.asset, given.partition)}]" if given.partition else ""
        remarks.append(
            f"{number(len(unmet), 'input')} will be missing: {names.asset(task.asset)} needs"
            f" {names.asset(given.asset)}{partition}, which has no version and is not planned;"
            f" select it too: '+{names.asset(task.asset)}'"
        )
    return [line for remark in remarks for line in ("", click.style(remark, fg="yellow"))]


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
        f"{len(diff.added):,} added, {len(diff.removed):,} removed, {len(diff.changed):,} changed"
        f" since {against}."
    )
    return "\n".join(lines)


class _Names:
    """Assets and partitions as people read them."""

    def __init__(self, manifest: Manifest, now: datetime) -> None:
        self._spaces: dict[str, PartitionSet] = {
            asset.key.canonical: asset.partitions.keys(now)
            for asset in manifest.assets
            if asset.partitions is not None
        }

    def asset(self, canonical: str) -> str:
        return str(AssetKey.parse(canonical))

    def label(self, asset: str, partition: str) -> str:
        text = self._spaces[asset].label(PartitionKey.parse(partition))
        # A value may hold what would move the cursor or end the line.
        return "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text).rstrip()

    def partitions(self, tasks: list[PlannedTask]) -> list[str]:
        """One line for the partitions of an asset's tasks; none if it has none."""
        keys = [task.partition for task in tasks if task.partition is not None]
        if not keys:
            return []
        first = self.label(tasks[0].asset, keys[0])
        if len(keys) == 1:
            return [first]
        last = self.label(tasks[0].asset, keys[-1])
        gaps = "" if self._contiguous(tasks[0].asset, keys) else ", with gaps"
        return [f"{len(keys):,} partitions, {first} … {last}{gaps}"]

    def _contiguous(self, asset: str, partitions: list[str]) -> bool:
        """Whether they are all there are from the first to the last, on every dimension."""
        keys = [PartitionKey.parse(partition) for partition in partitions]
        count = 1
        space = self._spaces[asset]
        for name, axis in zip(space.names, space.axes, strict=True):
            found = {axis.find(spell_scalar(key[name])) for key in keys}
            at = [index for index in found if index is not None]
            if len(at) < len(found) or max(at) - min(at) + 1 > len(at):
                return False
            count *= len(at)
        return count == len(keys)


def number(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"
