"""`servo ledger`: verify the log of facts, show its end, follow it, show one segment."""

import asyncio
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec

from servo.cli.asking import Count, project_option
from servo.cli.output import clock_text, print_bytes, printable, say, seconds_text, task_name
from servo.cli.reading import NOTHING, find_store
from servo.cli.render import number
from servo.core import segments
from servo.core.keys import TaskKey
from servo.core.segments import Segment
from servo.errors import Corrupt, Invalid
from servo.events.envelope import Event, Unknown, microseconds
from servo.events.vocabulary import VOCABULARY
from servo.ledger.verify import Report, verify
from servo.ports.store import Store
from servo.wiring.stores import system

POLL = 0.2
"""Seconds between looks for new segments."""


@click.group("ledger", invoke_without_command=True, subcommand_metavar="COMMAND [ARGS]...")
@click.pass_context
def command(context: click.Context) -> None:
    """Look at the log of facts that all state is made from, and verify it."""
    if context.invoked_subcommand is None:
        say(context.get_help(), error=True)
        context.exit(2)


# --- verify ---------------------------------------------------------------------------------------


@command.command("verify", short_help="Check that the ledger is what was written.")
@click.option(
    "--head",
    metavar="HASH",
    help="A hash that this command printed before: that segment must still be there, unchanged.",
)
@project_option
@click.pass_context
def verify_command(context: click.Context, head: str | None, project: str) -> None:
    """Check that the ledger is what was written: no part changed, missing, swapped or cut off.

    The newest revision vouches for everything up to it, and --head for everything up to that hash.
    Keep the printed hash elsewhere to notice later that both were replaced. Also checked: the values
    that facts name, the chain of revisions, and the files of the newest one. Ends with 1 if something
    is wrong.
    """
    store = find_store(project)
    clock = system()
    began = clock.monotonic()
    report = asyncio.run(verify(store.objects, head=head))
    say(_told(report, clock.monotonic() - began))
    if report.findings or report.table_findings:
        context.exit(1)


def _told(report: Report, took: int) -> str:
    found = [*report.findings, *report.table_findings]
    if not report.segments and not found:
        return NOTHING
    counts = [
        number(report.segments, "segment"),
        number(report.events, "event"),
        number(report.values, "stored value"),
        f"{report.size / 2**10:,.0f} KiB",
    ]
    lines = [f"{', '.join(counts)}, checked in {seconds_text(took)}"]
    if report.redacted:
        lines.append(f"{number(report.redacted, 'event')} redacted")
    if report.unknown:
        lines.append(f"{number(report.unknown, 'event')} of types that this Servo does not know")
    if report.torn:
        lines.append(
            f"{number(report.torn, 'byte')} at the end are no whole segment: being written, or left"
            " by a crash; the next writer cuts them off"
        )
    lines.append(f"head {report.position}  {report.hash}")
    if report.revision:
        whole = "" if report.table_findings else ", and is whole"
        files = f"it names {number(report.files, 'table file')}{whole}"
        lines.append(f"revision {report.revision} vouches for 1 to {report.covered}; {files}")
    if report.noted:
        lines.append(f"the given hash vouches for 1 to {report.noted}")
    good = click.style("The ledger is what was written.", fg="green")
    if not found:
        return "\n".join([*lines, good])
    lines += ["", click.style(f"{number(len(found), 'finding')}:", fg="red")]
    lines += [f"  {finding}" for finding in found]
    lines.append("")
    if report.findings:
        lines.append("Keep the folder as it is, and restore the parts named above from a copy.")
    else:
        lines.append(good)
        lines.append(
            "Tables are made from it: restore their files from a copy, or, while nothing runs, remove"
            " the folders tables and manifests of the workspace; the next 'servo run' rebuilds them."
        )
    return "\n".join(lines)


# --- tail -----------------------------------------------------------------------------------------


@command.command("tail")
@click.option("-n", "count", type=Count(0), default=10, show_default=True, help="How many events.")
@click.option("-f", "--follow", is_flag=True, help="Go on with new events as they are written.")
@click.option(
    "-o",
    "--output",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How to print them; json is one event per line.",
)
@project_option
def tail_command(count: int, follow: bool, form: str, project: str) -> None:
    """Show the last events."""
    asyncio.run(_tail(find_store(project), count, follow, form))


async def _tail(store: Store, count: int, follow: bool, form: str) -> None:
    head = await _head(store)
    if not head and not follow:
        say(NOTHING, error=True)
    position = max(1, head - count + 1)  # a segment has at least one event
    shown: list[tuple[int, int, bytes]] = []
    while position <= head:
        some = await _read(store, position)
        shown += [(s.header.position, i, line) for s in some for i, line in enumerate(s.lines)]
        shown = shown[-count:] if count else []
        position = some[-1].header.position + 1
    _print_events(shown, form)
    while follow:
        some = await _read(store, position)
        if some:
            _print_events(
                ((s.header.position, i, line) for s in some for i, line in enumerate(s.lines)), form
            )
            position = some[-1].header.position + 1
        else:
            await asyncio.sleep(POLL)


async def _head(store: Store) -> int:
    with _pointing():
        return await store.log.head()


async def _read(store: Store, position: int) -> list[Segment]:
    with _pointing():
        found = await store.log.read(position)
        return [segments.parse(data, position + i) for i, data in enumerate(found)]


@contextmanager
def _pointing() -> Iterator[None]:
    """What is damaged is damaged for the log as a whole; who looks for more is another."""
    try:
        yield
    except Corrupt as error:
        raise Corrupt(f"{error}; 'servo ledger verify' lists all that is wrong") from None


def _print_events(events: Iterable[tuple[int, int, bytes]], form: str) -> None:
    for position, index, line in events:
        if form == "json":
            print_bytes(b'{"position":%d,"index":%d,%b' % (position, index, line[1:]))
        else:
            say(_event_line(position, index, line))
    if sys.stdout is not None:
        sys.stdout.flush()


def _event_line(position: int, index: int, line: bytes) -> str:
    place = click.style(f"{f'{position}:{index}':>9}", dim=True)
    if segments.is_redacted(line):
        return f"{place}  redacted"
    event = VOCABULARY.decode(line)
    at = clock_text(microseconds(event.timestamp))
    kind = click.style(f"{event.event_type:<24}", fg="cyan")
    return f"{place}  {at}  {event.source:<6}  {kind}  {_about(event)}".rstrip()


def _about(event: Event) -> str:
    """What an event is about, in a few words."""
    if isinstance(event.payload, Unknown):
        return "of a type that this Servo does not know"
    fact: dict[str, Any] = msgspec.to_builtins(event.payload)
    words = []
    if "task_key" in fact:
        words.append(_task(fact.pop("task_key")))
        words.append(f"attempt {fact.pop('attempt', 1)}")
    for name in ("outcome", "run_id", "deployment_id", "writer_id", "epoch", "action", "subject"):
        if name in fact:
            value = fact[name]
            words.append(
                str(value) if name == "outcome" else f"{name.removesuffix('_id')} {_short(value)}"
            )
    error = fact.get("error")
    if error:
        words.append(str(error["message"]))
    return printable("  ".join(words))


def _task(key: str) -> str:
    try:
        task = TaskKey.parse(key)
    except Invalid:
        return key
    partition = task.partition.canonical if task.partition is not None else None
    return task_name(task.asset.canonical, partition)


def _short(value: object) -> str:
    text = str(value)
    return text[:10] if len(text) == 26 and text.isalnum() else text


# --- show -----------------------------------------------------------------------------------------


@command.command("show")
@click.argument("position", type=Count(1))
@project_option
def show_command(position: int, project: str) -> None:
    """Show one segment: its header and its events."""
    asyncio.run(_show(find_store(project), position))


async def _show(store: Store, position: int) -> None:
    head = await _head(store)
    if position > head:
        raise Invalid(
            f"there is no segment {position}: the last one is {head}" if head else NOTHING
        )
    segment = (await _read(store, position))[0]
    say(_fields(msgspec.to_builtins(segment.header)))
    for index, line in enumerate(segment.lines):
        say("\n" + click.style(f"event {position}:{index}", bold=True))
        if segments.is_redacted(line):
            say("redacted: the line was erased, its digest is kept")
            continue
        event = msgspec.json.decode(line)
        payload = event.pop("payload", {})
        say(_fields(event))
        say(click.style("payload", dim=True))
        text = msgspec.json.format(msgspec.json.encode(payload), indent=2).decode()
        say("\n".join(f"  {printable(each)}" for each in text.splitlines()))


def _fields(values: dict[str, Any]) -> str:
    width = max(len(name) for name in values)
    return "\n".join(
        f"{click.style(f'{name:<{width}}', dim=True)}  {printable(str(value))}"
        for name, value in values.items()
    )
