"""Write the pages of docs/reference that are made from the code.

    python tools/make_reference.py            writes them
    python tools/make_reference.py --check    changes nothing; fails if one of them is out of date

What a page says about a name is its signature and its docstring, read from the source, so a page
can only be wrong where the code's own words are. tests/house/test_reference.py calls `--check`.
"""

from __future__ import annotations

import argparse
import ast
import enum
import inspect
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import click

import servo
import servo.types
from servo.cli.main import COMMANDS, cli
from servo.core import failures, policies, states
from servo.core.durations import format_duration

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path("docs") / "reference"
MADE = "<!-- Made from the code by tools/make_reference.py. Change the code, then run it again. -->"


def main(arguments: list[str] | None = None, root: Path = ROOT) -> int:
    parser = argparse.ArgumentParser(description="Write the reference pages made from the code.")
    parser.add_argument("--check", action="store_true", help="only say which are out of date")
    check = parser.parse_args(arguments).check
    stale = 0
    for name, make in PAGES.items():
        path = root / FOLDER / name
        text = make()
        if path.exists() and path.read_text() == text:
            continue
        stale += 1
        if check:
            print(f"{FOLDER / name} is out of date; run: python tools/make_reference.py")
        else:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
            print(f"wrote {FOLDER / name}")
    return 1 if check and stale else 0


# ---------------------------------------------------------------- sdk.md


HEADINGS = {
    "servo.sdk.partitions": "Partitions",
    "servo.sdk.mappings": "Mappings",
    "servo.core.mappings": "Mappings",
    "servo.core.policies": "Policies",
}
ABOUT = {
    "Partitions": (
        "How an asset is divided. Each call makes one dimension; its first argument is the"
        " dimension's name, which you choose. [How to choose](../how-to/partitions.md)."
        "\n\n`When` is a date, a datetime without an offset, or the ISO spelling of either, in the"
        " local time of `timezone`. `Scalar` is a string, an integer, a boolean, a date, a"
        " datetime with an offset, or `None`."
    ),
    "Mappings": (
        "Which upstream partitions a partition needs, given beside the upstream asset:"
        " `deps={orders: LastN(7)}`. Without one, dimensions are matched by name, then by kind, and"
        " time windows by overlap."
    ),
    "Policies": "How a task is run and what a failed check does. [What they decide](states.md).",
}
PLANNED = "\n\n*Planned:* `@asset` does not take policies yet; every asset has the defaults."


def sdk_page() -> str:
    return page(
        "SDK",
        "Every name that `servo` and `servo.types` export. What is not listed here is not public.",
        "## `servo`",
        *entries(servo),
        "## `servo.types`",
        *grouped(servo.types),
    )


def entries(module: Any) -> Iterator[str]:
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, str):
            yield f"### `{name}`\n\nThe version, such as `{value}`."
        else:
            yield entry(name, value)


def grouped(module: Any) -> Iterator[str]:
    groups: dict[str, list[str]] = {heading: [] for heading in HEADINGS.values()}
    for name in module.__all__:
        value = getattr(module, name)
        groups[HEADINGS[value.__module__]].append(entry(name, value, "####"))
    for heading, found in groups.items():
        about = ABOUT[heading]
        if heading == "Policies" and "retry" not in inspect.signature(servo.asset).parameters:
            about += PLANNED
        yield f"### {heading}\n\n{about}"
        yield from found


def entry(name: str, value: Any, level: str = "###") -> str:
    lines = [f"{level} `{name}`"]
    if isinstance(value, type) and issubclass(value, enum.Enum):
        lines.append(f"One of {', '.join(f'`{m.value}`' for m in value)}.")
    elif not (isinstance(value, type) and issubclass(value, Exception)):
        lines.append(f"```py\n{signature(name, value)}\n```")
    lines.append(paragraphs(value, None if inspect.isfunction(value) else 1))
    for maker in makers(value):
        made = getattr(value, maker)
        lines.append(
            f"```py\n{signature(f'{name}.{maker}', made)}\n```\n\n{paragraphs(made, None)}"
        )
    return "\n\n".join(lines)


def makers(value: Any) -> Iterator[str]:
    """Other ways of making a value of this class."""
    for name, member in vars(value).items() if isinstance(value, type) else ():
        if isinstance(member, classmethod) and not name.startswith("_"):
            yield name


def signature(name: str, value: Any) -> str:
    """As it is written in the source, where the names of types are those a reader knows."""
    definition = source(value)
    if isinstance(definition, ast.ClassDef):
        own = [d for d in definition.body if getattr(d, "name", "") == "__init__"]
        if not own:
            return call(name, fields(definition))
        definition = own[0]
    assert isinstance(definition, ast.FunctionDef)
    return call(name, parameters(definition))


def call(name: str, given: list[str]) -> str:
    line = f"{name}({', '.join(given)})"
    return line if len(line) <= 92 else f"{name}(\n    " + ",\n    ".join(given) + ",\n)"


def fields(definition: ast.ClassDef) -> list[str]:
    """The arguments of a struct."""
    keywords = {k.arg: ast.unparse(k.value) for k in definition.keywords}
    found = ["*"] if keywords.get("kw_only") == "True" else []
    found += [ast.unparse(item) for item in definition.body if isinstance(item, ast.AnnAssign)]
    return [] if found == ["*"] else found


def parameters(definition: ast.FunctionDef) -> list[str]:
    given = definition.args
    ordinary = [*given.posonlyargs, *given.args]
    none: list[ast.expr | None] = [None] * (len(ordinary) - len(given.defaults))
    found = [shown(a, d) for a, d in zip(ordinary, [*none, *given.defaults], strict=True)]
    if given.posonlyargs:
        found.insert(len(given.posonlyargs), "/")
    if ordinary and ordinary[0].arg in ("self", "cls"):
        del found[0]
    if given.vararg:
        found.append("*" + shown(given.vararg))
    elif given.kwonlyargs:
        found.append("*")
    found += [shown(a, d) for a, d in zip(given.kwonlyargs, given.kw_defaults, strict=True)]
    return [*found, "**" + shown(given.kwarg)] if given.kwarg else found


def shown(argument: ast.arg, default: ast.expr | None = None) -> str:
    value = "" if default is None else f" = {ast.unparse(default)}"
    return f"{ast.unparse(argument)}{value}"


def source(value: Any) -> ast.stmt:
    return ast.parse(textwrap.dedent(inspect.getsource(value))).body[0]


def paragraphs(value: Any, count: int | None) -> str:
    found = (inspect.getdoc(value) or "").split("\n\n")
    return "\n\n".join(found[:count])


# ---------------------------------------------------------------- cli.md


def cli_page() -> str:
    return page(
        "Command line",
        "What `servo --help` and the help of each command say.",
        f"## `servo`\n\n{usage(cli, 'servo')}",
        *(section for name in COMMANDS for section in sections(command(name), f"servo {name}")),
        "## Exit codes\n\n"
        + table(
            ["Code", "Meaning"],
            [
                ["0", "It worked. `--diff` ends with 0 whether or not the plans differ."],
                [
                    "1",
                    "It was tried and did not succeed: a run failed, the ledger is damaged.",
                ],
                ["2", "The input is wrong: one sentence on standard error says what to do."],
                ["130", "Interrupted from the keyboard; 143 by SIGTERM. A run can be resumed."],
            ],
        ),
        "## Output\n\nResults go to standard output, everything else to standard error. Both are in"
        " colour on a terminal, unless the environment variable `NO_COLOR` is set.",
    )


def command(name: str) -> click.Command:
    found = cli.get_command(click.Context(cli), name)
    assert found is not None
    return found


def sections(of: click.Command, name: str) -> Iterator[str]:
    """A command, then those below it."""
    yield f"## `{name}`\n\n{usage(of, name)}"
    for below, found in of.commands.items() if isinstance(of, click.Group) else ():
        yield from sections(found, f"{name} {below}")


def usage(of: click.Command, name: str) -> str:
    context = click.Context(
        of, info_name=name, terminal_width=92, help_option_names=["-h", "--help"]
    )
    return f"```text\n{of.get_help(context)}\n```"


# ---------------------------------------------------------------- states.md


def states_page() -> str:
    return page(
        "States, reasons and errors",
        "The engine runs tasks by these tables, and `servo status` and `servo sql` show states and"
        " reasons. Checks and quarantine, which some of them are about, are *planned*.",
        "## States of a task\n\n" + state_table(states.TaskState),
        "### Transitions of a task\n\nNo other step is possible, and nothing leaves an end. *Next"
        " attempt* marks the steps that begin one; the retry is the only step back.\n\n"
        + transitions(states.TASK_TRANSITIONS),
        "### Why a task changed its state\n\n" + reasons(states.TransitionReason),
        "### Why a task waits\n\nWaiting is not a transition: it is worked out whenever somebody"
        " asks.\n\n" + waits(),
        "### What an upstream task does to one that needs it\n\n" + edges(),
        "## States of a run\n\n" + state_table(states.RunState),
        "### Transitions of a run\n\n" + transitions(states.RUN_TRANSITIONS),
        "### Why a run changed its state\n\n" + reasons(states.RunTransitionReason),
        "## Who writes the fact\n\n" + table(["Who", "Meaning"], WRITERS),
        "## Errors\n\nEach failed attempt has a code. *Retried* says whether there is another"
        " attempt. *Planned:* `retry_on` and `no_retry_on`, which change that for an asset.\n\n"
        + errors(),
        "### Categories\n\n"
        + table(
            ["Category", "Meaning"],
            [[f"`{c}`", n] for c, n in notes(failures.FailureCategory)],
        ),
        "### What Servo does by itself\n\n"
        + table(
            ["Action", "Meaning"], [[f"`{a}`", n] for a, n in notes(failures.FailureAction) if n]
        ),
        "## Gating: what a failed check does\n\nA check without a severity is"
        f" `{policies.DEFAULT_SEVERITY}`. A check that could not be evaluated counts as failed.\n\n"
        + gating(),
        "From the most lenient action to the strictest; of several checks, the strictest"
        " counts:\n\n" + ", ".join(f"`{action}`" for action in policies.GatingAction) + ".",
        "## Defaults\n\n" + defaults(),
    )


WRITERS = [
    ["`requester`", "whoever asks for a run or for its end: a person, a schedule, a sensor"],
    ["`leader`", "the engine that leads the workspace: dispatch, reuse, deadlines"],
    ["`worker`", "the worker, or the executor that watched it die"],
    ["`fold`", "nobody: it follows from facts that are there already"],
]


def state_table(kind: Any) -> str:
    rows = [
        [f"`{state}`", "yes" if states.is_terminal(kind(state)) else "", note]
        for state, note in notes(kind)
    ]
    return table(["State", "End", "Meaning"], rows)


def transitions(rows: Iterable[states.Row[Any, Any]]) -> str:
    return table(
        ["From", "To", "Written by", "Reasons", "Next attempt"],
        [
            [
                "(new)" if row.source is None else f"`{row.source}`",
                f"`{row.target}`",
                row.by.value,
                ", ".join(f"`{reason}`" for reason in row.reasons),
                "yes" if row.next_attempt else "",
            ]
            for row in rows
        ],
    )


def reasons(kind: Any) -> str:
    return table(["Reason", "Meaning"], [[f"`{r}`", r.sentence] for r in kind])


def waits() -> str:
    return table(
        ["Reason", "Holds a task in", "Meaning"],
        [
            [
                f"`{reason}`",
                ", ".join(f"`{s}`" for s, held in states.WAITS.items() if reason in held),
                reason.sentence,
            ]
            for reason in states.WaitReason
        ],
    )


def edges() -> str:
    return table(
        ["Upstream ended", "Its version is", "The task that needs it", "Reason"],
        [
            [
                f"`{state}`",
                "" if bar is None else bar.value,
                "can go on" if effect.target is None else f"ends `{effect.target}`",
                "" if effect.reason is None else f"`{effect.reason}`",
            ]
            for (state, bar), effect in states.EDGES.items()
        ],
    )


def errors() -> str:
    return table(
        ["Code", "Category", "Retried", "Action", "Next step for you"],
        [
            [
                f"`{code}`",
                row.category.value,
                "yes" if row.retriable else "no",
                row.action.value,
                row.next_step,
            ]
            for code, row in failures.CODES.items()
        ],
    )


def gating() -> str:
    return table(
        ["Policy", *policies.Severity],
        [
            [f"`{name}`", *(f"`{policy.action_for(s)}`" for s in policies.Severity)]
            for name, policy in policies.GATING_PRESETS.items()
        ],
    )


def defaults() -> str:
    retry, timeouts = policies.RetryPolicy(), policies.Timeouts()
    assert timeouts.execution_ms is not None
    return table(
        ["What", "Default"],
        [
            ["Attempts, the first one included", str(retry.max_attempts)],
            ["Wait after the first failed attempt", format_duration(retry.initial_delay_ms)],
            ["Factor from one wait to the next", f"{retry.multiplier:g}"],
            ["Longest wait", format_duration(retry.max_delay_ms)],
            ["A wait is shortened by up to", f"{retry.jitter_percent} %, by the task's identity"],
            ["A worker must take a task within", format_duration(timeouts.dispatch_ack_ms)],
            ["A worker must give a sign of life every", format_duration(timeouts.heartbeat_ms)],
            ["An attempt must end within", format_duration(timeouts.execution_ms)],
        ],
    )


# ---------------------------------------------------------------- pages and tables


def notes(kind: Any) -> Iterator[tuple[str, str]]:
    """The members of an enumeration, each with the text that stands under it in the source."""
    definition = source(kind)
    assert isinstance(definition, ast.ClassDef)
    told = dict.fromkeys((member.name for member in kind), "")
    for item, after in zip(definition.body, definition.body[1:], strict=False):
        if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
            if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
                told[item.targets[0].id] = " ".join(str(after.value.value).split())
    return ((kind[name].value, note) for name, note in told.items())


def table(head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    head = list(head)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cell or ' ' for cell in line)} |" for line in lines)


def page(title: str, *sections: str) -> str:
    return "\n\n".join([f"# {title}", MADE, *sections]) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "sdk.md": sdk_page,
    "cli.md": cli_page,
    "states.md": states_page,
}


if __name__ == "__main__":
    sys.exit(main())
