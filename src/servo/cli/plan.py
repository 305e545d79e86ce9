"""`servo plan`."""

import sys
from datetime import UTC, datetime
from pathlib import Path

import click

from servo import wiring
from servo.cli.render import show_diff, show_plan
from servo.core import plan as plans
from servo.core.plan import Plan, PlanRequest
from servo.core.planner import PlanningState, make_plan
from servo.errors import Invalid


@click.command("plan")
@click.argument("selection", default="*")
@click.option(
    "-p",
    "--partition",
    "partitions",
    multiple=True,
    metavar="DIM=KEY",
    help="Partitions to plan: date=2024-01-31, date=2024-01-01..2024-01-31, region=eu,us."
    " Repeatable. Default: the latest window, all keys of other dimensions.",
)
@click.option("--force", is_flag=True, help="Plan to run everything, even if nothing changed.")
@click.option(
    "--now", "at", metavar="TIME", help="Plan as if it were this time (ISO 8601). Default: now."
)
@click.option("--out", metavar="FILE", help="Write the plan to a file.")
@click.option("--diff", "against", metavar="FILE", help="Compare with a plan written before.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan (or the diff) as JSON.")
@click.option(
    "--project",
    default=".",
    metavar="DIR",
    show_default="this folder",
    help="The folder with servo.toml.",
)
def command(
    selection: str,
    partitions: tuple[str, ...],
    force: bool,
    at: str | None,
    out: str | None,
    against: str | None,
    as_json: bool,
    project: str,
) -> None:
    """Show what would run, in which order and why.

    SELECTION names assets: orders, raw.orders, +orders (with everything upstream), orders+,
    2+orders+1, tag:tier=gold, owner:, group:, namespace:, kind:, combined by and, or, not and
    brackets. Default: everything.
    """
    loaded = wiring.load_project(Path(project))
    request = PlanRequest(selection=selection, partitions=parse_partitions(partitions), force=force)
    now = wiring.now() if at is None else parse_time(at)
    plan = make_plan(request, loaded.manifest, PlanningState(now))
    if out is not None:
        write(Path(out), plans.dump(plan))
        print(f"Wrote {len(plan.tasks)} tasks to {out}.", file=sys.stderr)
    if against is not None:
        difference = plans.diff(read(Path(against)), plan)
        print(plans.dump_diff(difference).decode() if as_json else show_diff(difference, against))
    elif as_json:
        print(plans.dump(plan).decode())
    elif out is None:
        colour = sys.stdout.isatty() and not wiring.environment().get("NO_COLOR")
        click.echo(show_plan(plan, loaded.manifest, now), color=colour)


def parse_partitions(given: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """`date=a..b` and `region=eu,us`; several of the same dimension add up."""
    chosen: dict[str, tuple[str, ...]] = {}
    for text in given:
        name, equals, keys = text.partition("=")
        if not equals or not name or not keys:
            raise Invalid(f"-p {text!r} is not of the form DIMENSION=KEY, like date=2024-01-31")
        parts = tuple(part for part in keys.split(",") if part)
        if not parts:
            raise Invalid(f"-p {text!r} names no key; write one after the =")
        chosen[name] = chosen.get(name, ()) + parts
    return chosen


def parse_time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"--now {text!r} is not a time like 2024-01-31T06:00:00Z") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def read(path: Path) -> Plan:
    try:
        return plans.load(path.read_bytes())
    except OSError as error:
        raise Invalid(f"the plan {path} cannot be read: {error.strerror}") from None
    except Invalid as why:
        raise Invalid(f"{path}: {why}") from None


def write(path: Path, data: bytes) -> None:
    try:
        path.write_bytes(data)
    except OSError as error:
        raise Invalid(f"the plan cannot be written to {path}: {error.strerror}") from None
