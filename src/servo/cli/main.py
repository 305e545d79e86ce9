"""`servo`: commands are loaded when they are called, so that help is immediate.

Exit codes: 0 for done; 1 for what was tried and did not succeed (a run that failed, a damaged ledger, a
full disk); 2 for something to mend in what was asked; 130 for Ctrl-C, 143 for SIGTERM. 1 and 2 come
with a message.
Data goes to stdout, everything said about it to stderr.
"""

import codecs
import errno
import os
import sys
from importlib import import_module
from io import TextIOWrapper

import click

import servo
from servo.errors import Conflict, Invalid, ServoError, Unavailable

COMMANDS = {
    "plan": ("servo.cli.plan", "Show what would run, in which order and why."),
    "run": ("servo.cli.run", "Make assets: plan, run the tasks, record what happened."),
    "cancel": ("servo.cli.cancel", "End a run that has not ended."),
    "status": ("servo.cli.status", "Show runs, or the tasks of one run."),
    "sql": ("servo.cli.sql", "Ask the tables of the state in SQL."),
    "ledger": ("servo.cli.ledger", "Look at the log of facts, and verify it."),
}


class _Lazy(click.Group):
    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = import_module(COMMANDS[cmd_name][0])
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            from servo.errors import did_you_mean

            hint = did_you_mean(args[0], COMMANDS) or f"; commands: {', '.join(COMMANDS)}"
            raise click.UsageError(f"there is no command {args[0]!r}{hint}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        # From the table above: listing the commands must not load them.
        with formatter.section("Commands"):
            formatter.write_dl([(name, about) for name, (_, about) in COMMANDS.items()])


@click.group(
    cls=_Lazy,
    invoke_without_command=True,
    subcommand_metavar="COMMAND [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(servo.__version__, "-V", "--version", message="servo %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Servo makes data assets: what has to run, in which order, and why."""
    if ctx.invoked_subcommand is None:
        print(ctx.get_help(), file=sys.stderr)
        ctx.exit(2)


def main() -> None:
    """Run a command; what goes wrong on purpose is one message and an exit code."""
    _write_anything()
    code = 0
    try:
        # Not cli.main(), which has its own way with a broken pipe and Ctrl-C.
        with cli.make_context("servo", sys.argv[1:]) as context:
            cli.invoke(context)
        _flush()
    except click.exceptions.Exit as done:
        code = done.exit_code
    except click.ClickException as error:
        message = error.format_message()
        print(f"servo: {message[:1].lower()}{message[1:]}", file=sys.stderr)
        if isinstance(error, click.UsageError):
            path = error.ctx.command_path if error.ctx else "servo"
            print(f"Try '{path} --help'.", file=sys.stderr)
        code = 2
    except ServoError as error:
        print(f"servo: {_told(error)}", file=sys.stderr)
        code = 2 if isinstance(error, Invalid | Conflict) else 1
    except (KeyboardInterrupt, click.Abort):
        code = 130
    except BrokenPipeError:
        # The reader (head, less) has seen enough.
        _abandon_output()
    except OSError as error:
        # What reads and writes files says which; the one without a name is stdout.
        what = "the output cannot be written: "
        if error.filename is not None:
            what = f"{os.fsdecode(error.filename)} cannot be used: "
        print(f"servo: {what}{error.strerror}", file=sys.stderr)
        code = 2
        _abandon_output()
    sys.exit(code)


_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)


def _told(error: ServoError) -> str:
    """What an error says; but where access is denied, trying again would be no advice."""
    cause = error.__cause__
    if isinstance(error, Unavailable) and isinstance(cause, OSError) and cause.errno in _NO_ACCESS:
        what, found, _ = str(error).partition(f": {cause}")
        if found:
            return f"{what}: {cause.strerror}; give yourself access to it"
    return str(error)


def _write_anything() -> None:
    """A terminal that knows only ASCII gets `...` for `…`, not an error in the middle of a plan."""
    codecs.register_error("servo", _spelled_out)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="servo")


def _spelled_out(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    plain = {"…": "...", "→": "->", "×": "x", "±": "+-"}
    wrong = error.object[error.start : error.end]
    return "".join(plain.get(c) or ascii(c)[1:-1] for c in wrong), error.end


def _flush() -> None:
    """Now, while a problem can be told; what is left would be written when Python ends."""
    if sys.stdout is not None:
        sys.stdout.flush()


def _abandon_output() -> None:
    """When it ends, Python would try once more to write what is left, and complain."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
