"""`servo plan`."""

import sys
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path

import click

from servo import wiring
from servo.cli.render import number, show_diff, show_plan
from servo.core import plan as plans
from servo.core.plan import Plan, PlanRequest
from servo.core.planner import PlanningState, make_plan
from servo.core.zones import FIRST_YEAR, LAST_YEAR
from servo.errors import Invalid


@click.command("plan")
@click.argument("selection", nargs=-1)
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
    "--now",
    "at",
    metavar="TIME",
    help="Plan as if it were this time (ISO 8601, in UTC unless it says otherwise). Default: now.",
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
    selection: tuple[str, ...],
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
    for text in (*selection, *partitions):
        check_text(text)
    # The shell cuts `a or b` into words; there is nothing else they could mean.
    asked = " ".join(selection) if selection else "*"
    request = PlanRequest(selection=asked, partitions=parse_partitions(partitions), force=force)
    now = wiring.now() if at is None else parse_time(at)
    old = None if against is None else read(Path(against))
    with redirect_stdout(sys.stderr):  # what modules print when imported is no part of the answer
        loaded = wiring.load_project(Path(project))
    plan = make_plan(request, loaded.manifest, PlanningState(now))
    if out is not None:
        write(Path(out), plans.dump(plan))
        print(f"Wrote {number(len(plan.tasks), 'task')} to {out}.", file=sys.stderr)
    if old is not None and against is not None:
        difference = plans.diff(old, plan)
        if as_json:
            _print_json(plans.dump_diff(difference))
        else:
            _print(show_diff(difference, against))
    elif as_json:
        _print_json(plans.dump(plan))
    elif out is None:
        _print(show_plan(plan, loaded.manifest, now))


def _print(text: str) -> None:
    coloured = (
        sys.stdout is not None
        and sys.stdout.isatty()
        and not wiring.environment().get("NO_COLOR")
        and wiring.environment().get("TERM") != "dumb"
    )
    print(text if coloured else click.unstyle(text))


def _print_json(data: bytes) -> None:
    """The bytes themselves: JSON is UTF-8 whatever the terminal is."""
    if sys.stdout is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data + b"\n")


def check_text(text: str) -> None:
    """A plan holds what was asked for, and is UTF-8; the shell may hand over any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"the argument {text!r} is not UTF-8; type it again") from None


def parse_partitions(given: tuple[str, ...]) -> dict[str, tuple[str, ...]]:
    """`date=a..b` and `region=eu,us`; several of the same dimension add up."""
    chosen: dict[str, tuple[str, ...]] = {}
    for text in given:
        name, equals, keys = text.partition("=")
        if not equals or not name or not keys:
            raise Invalid(f"-p {text!r} is not of the form DIMENSION=KEY, like date=2024-01-31")
        parts = tuple(keys.split(","))
        if not all(parts):
            raise Invalid(f"-p {text!r} names an empty key; write keys between the commas")
        chosen[name] = chosen.get(name, ()) + parts
    return chosen


def parse_time(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise Invalid(f"--now {text!r} is not a time; write it like 2024-01-31T06:00:00Z") from None
    if not FIRST_YEAR < moment.year < LAST_YEAR:
        raise Invalid(
            f"--now {text!r} is outside the years {FIRST_YEAR + 1} to {LAST_YEAR - 1};"
            " choose a time within them"
        )
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def read(path: Path) -> Plan:
    try:
        return plans.load(path.read_bytes())
    except OSError as error:
        raise Invalid(
            f"the plan {str(path)!r} cannot be read: {error.strerror};"
            " write one with 'servo plan --out'"
        ) from None
    except Invalid as why:
        raise Invalid(f"{path}: {why}") from None


def write(path: Path, data: bytes) -> None:
    if path.is_file() and path.stat().st_size and not plans.is_plan(path.read_bytes()):
        raise Invalid(f"{str(path)!r} is there already and is no plan; choose another file")
    try:
        path.write_bytes(data)
    except OSError as error:
        raise Invalid(
            f"the plan cannot be written to {str(path)!r}: {error.strerror}; choose another file"
        ) from None
