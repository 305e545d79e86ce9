"""How commands print: colours only where a person looks, tables that line up, JSON and CSV for programs.

`table` and `cell` are pure. Colours are put in by whoever makes the text, and taken out again here.
"""

import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, TextIO

import click

from servo import wiring
from servo.core.keys import AssetKey, PartitionKey
from servo.errors import Invalid

WIDEST = 60
"""On a terminal a cell is cut off here, so that lines stay lines."""

STATES = {
    "SUCCEEDED": "green",
    "REUSED": "green",
    "FAILED": "red",
    "TIMED_OUT": "red",
    "CANCELLED": "yellow",
    "CANCELLING": "yellow",
    "SKIPPED": "yellow",
    "RETRY_WAIT": "yellow",
    "RUNNING": "cyan",
    "DISPATCHED": "cyan",
}

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

output_option = click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["table", "json", "csv"]),
    default="table",
    show_default=True,
    help="How to print it.",
)


def coloured(stream: TextIO | None) -> bool:
    """Whether somebody looks at it who likes colours."""
    return (
        stream is not None
        and stream.isatty()
        and not wiring.environment().get("NO_COLOR")
        and wiring.environment().get("TERM") != "dumb"
    )


def say(text: str, *, error: bool = False) -> None:
    """To standard output, or to standard error."""
    stream = sys.stderr if error else sys.stdout
    if error and sys.stdout is not None:
        sys.stdout.flush()  # what was said before stands before it, where both go to one place
    if stream is not None:  # closed by whoever started us; print would take the other one
        print(text if coloured(stream) else click.unstyle(text), file=stream)


def print_bytes(data: bytes) -> None:
    """The bytes themselves: JSON is UTF-8 whatever the terminal is."""
    if sys.stdout is not None:
        sys.stdout.flush()
        sys.stdout.buffer.write(data + b"\n")


def print_rows(form: str, columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Rows as they are asked for."""
    if form == "json":
        import msgspec

        named = [dict(zip(columns, row, strict=True)) for row in rows]
        print_bytes(msgspec.json.format(msgspec.json.encode(named, enc_hook=str), indent=2))
    elif form == "csv":
        import csv

        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([["" if v is None else cell(v) for v in row] for row in rows])
    else:
        widest = WIDEST if sys.stdout is not None and sys.stdout.isatty() else None
        say(table(columns, rows, widest=widest))


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    widest: int | None = None,
    styles: Mapping[int, Callable[[str], str]] = {},
) -> str:
    """Columns that line up, numbers to the right, under a line of names."""
    shown = [[_cut(printable(cell(value)), widest) for value in row] for row in rows]
    widths = [max([len(name), *(len(row[at]) for row in shown)]) for at, name in enumerate(columns)]
    right = [
        any(isinstance(row[at], int | float) and not isinstance(row[at], bool) for row in rows)
        for at in range(len(columns))
    ]

    def line(cells: Sequence[str], style: Callable[[int, str], str]) -> str:
        placed = [
            " " * (width - len(text)) + style(at, text)
            if right[at]
            else style(at, text) + " " * (width - len(text))
            for at, (text, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return "  ".join(placed).rstrip()

    head = line(list(columns), lambda _, text: click.style(text, dim=True) if text else "")
    body = [line(row, lambda at, text: styles[at](text) if at in styles else text) for row in shown]
    return "\n".join([head, *body])


def cell(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return moment_text(value)
    return str(value)


def moment_text(moment: datetime) -> str:
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC)
    text = moment.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds").rstrip("0")
    return text.removesuffix(".") + ("Z" if moment.tzinfo is not None else "")


def printable(text: str) -> str:
    """A value may hold what would move the cursor or end the line."""
    return (
        text
        if text.isprintable()
        else "".join(c if c.isprintable() else ascii(c)[1:-1] for c in text)
    )


def _cut(text: str, widest: int | None) -> str:
    return text if widest is None or len(text) <= widest else text[: widest - 1] + "…"


def moment_of(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)


def clock_text(microseconds: int | None) -> str:
    """To the second, in UTC: for people who look at a list."""
    moment = moment_of(microseconds)
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def seconds_text(microseconds: float | None) -> str:
    """How long something took, in two or three digits."""
    if microseconds is None:
        return ""
    seconds = max(microseconds, 0) / 1e6
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms" if seconds >= 0.0095 else f"{seconds * 1000:.1f} ms"
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m {rest:02d}s" if minutes < 60 else f"{minutes // 60}h {minutes % 60:02d}m"


def state_style(state: str, text: str | None = None) -> str:
    return click.style(state if text is None else text, fg=STATES.get(state))


def task_name(asset: str, partition: str | None) -> str:
    """`raw.orders date=2024-01-31`, from canonical keys."""
    name = str(AssetKey.parse(asset))
    return name if not partition else f"{name} {partition_name(partition)}"


def partition_name(partition: str) -> str:
    try:
        values = PartitionKey.parse(partition)
    except Invalid:  # written by a newer Servo
        return printable(partition)
    return ", ".join(f"{name}={_scalar(value)}" for name, value in values.items())


def _scalar(value: object) -> str:
    if isinstance(value, datetime):
        text = value.strftime("%Y-%m-%dT%H:%M:%S.%f").rstrip("0").removesuffix(".")
        return text.removesuffix(":00") + "Z"
    return printable(cell(value))


def short_ids(ids: Sequence[str], least: int = 10) -> dict[str, str]:
    """The shortest beginnings that tell them apart; the first ten characters of a ULID are its time."""
    length = least
    while length < 26 and len({each[:length] for each in ids}) < len(set(ids)):
        length += 1
    return {each: each[:length] for each in ids}
