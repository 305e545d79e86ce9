"""What commands that plan are asked for: which assets, which partitions, as of when, where."""

import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

import click

from servo import wiring
from servo.core.plan import Plan, PlanRequest
from servo.core.planner import PlanningState, make_plan
from servo.core.zones import FIRST_YEAR, LAST_YEAR
from servo.errors import Invalid
from servo.runtime.project import Project

project_option = click.option(
    "--project",
    default=".",
    metavar="DIR",
    show_default="this folder",
    help="The folder with servo.toml.",
)


class Count(click.IntRange):
    """A whole number within bounds; what is none is told in our words."""

    name = "number"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = None
        if (
            number is None
            or (self.min is not None and number < self.min)
            or (self.max is not None and number > self.max)
        ):
            upper = "" if self.max is None else f" to {self.max}"
            bounds = f"from {self.min}{upper}" + ("" if upper else " up")
            self.fail(f"{str(value)[:80]!r} is not a whole number {bounds}", param, ctx)
        return number


def planning_options(verb: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """SELECTION, -p, --force and --now, for a command that does `verb` to what they name."""
    options: list[Callable[[Any], Any]] = [
        click.argument("selection", nargs=-1),
        click.option(
            "-p",
            "--partition",
            "partitions",
            multiple=True,
            metavar="DIM=KEY",
            help=f"Partitions to {verb}: date=2024-01-31, date=2024-01-01..2024-01-31, region=eu,us."
            " Repeatable. Default: the latest window, all keys of other dimensions.",
        ),
        click.option(
            "--force",
            is_flag=True,
            help="Plan to run everything, even if nothing changed. (So far everything runs anyway.)",
        ),
        click.option(
            "--now",
            "at",
            metavar="TIME",
            help="Plan as if it were this time (ISO 8601, in UTC unless it says otherwise)."
            " Default: now.",
        ),
    ]

    def decorate(command: Callable[..., None]) -> Callable[..., None]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


class Asked(NamedTuple):
    """What was asked for, checked as far as that goes without the project."""

    request: PlanRequest
    now: datetime

    def plan(self, project: Project) -> Plan:
        return make_plan(self.request, project.manifest, PlanningState(self.now))


def parse_asked(
    selection: tuple[str, ...], partitions: tuple[str, ...], force: bool, at: str | None
) -> Asked:
    for text in (*selection, *partitions):
        check_text(text)
    # The shell cuts `a or b` into words; there is nothing else they could mean.
    asked = " ".join(selection) if selection else "*"
    request = PlanRequest(selection=asked, partitions=parse_partitions(partitions), force=force)
    return Asked(request, wiring.now() if at is None else parse_time(at))


def load_project(folder: str) -> Project:
    with redirect_stdout(sys.stderr):  # what modules print when imported is no part of the answer
        return wiring.load_project(Path(folder))


def check_text(text: str) -> None:
    """A plan holds what was asked for, and is UTF-8; the shell may hand over any bytes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise Invalid(f"the argument {text!r} is not UTF-8; type it again") from None


def check_words(option: str, text: str, longest: int) -> None:
    """A text that the ledger keeps: short, and of characters that can be shown."""
    check_text(text)
    if not text.strip():
        raise Invalid(f"{option} is empty; write something, or leave it out")
    if len(text) > longest or not text.isprintable():
        found = f"{len(text):,} characters" if len(text) > longest else "one that cannot be printed"
        raise Invalid(
            f"{option} takes up to {longest} characters that can be printed, and this has {found};"
            " write another"
        )


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
