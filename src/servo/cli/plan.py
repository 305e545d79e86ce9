"""`servo plan`."""

import sys
from pathlib import Path

import click

from servo.cli.asking import load_project, parse_asked, planning_options, project_option
from servo.cli.output import print_bytes, say
from servo.cli.render import number, show_diff, show_plan
from servo.core import plan as plans
from servo.core.plan import Plan
from servo.errors import Invalid


@click.command("plan")
@planning_options("plan")
@click.option("--out", metavar="FILE", help="Write the plan to a file.")
@click.option("--diff", "against", metavar="FILE", help="Compare with a plan written before.")
@click.option("--json", "as_json", is_flag=True, help="Print the plan (or the diff) as JSON.")
@project_option
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
    asked = parse_asked(selection, partitions, force, at)
    old = None if against is None else read(Path(against))
    loaded = load_project(project)
    plan = asked.plan(loaded)
    if out is not None:
        write(Path(out), plans.dump(plan))
        print(f"Wrote {number(len(plan.tasks), 'task')} to {out}.", file=sys.stderr)
    if old is not None and against is not None:
        difference = plans.diff(old, plan)
        if as_json:
            print_bytes(plans.dump_diff(difference))
        else:
            say(show_diff(difference, against))
    elif as_json:
        print_bytes(plans.dump(plan))
    elif out is None:
        say(show_plan(plan, loaded.manifest, asked.now))


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
