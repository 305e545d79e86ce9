"""`servo`: commands are loaded when they are called, so that help is immediate."""

import sys
from importlib import import_module

import click

import servo
from servo.errors import ServoError

COMMANDS = {
    "plan": ("servo.cli.plan", "Show what would run, in which order and why."),
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


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(servo.__version__, "-V", "--version", message="servo %(version)s")
def cli() -> None:
    """Servo plans, runs, checks, versions and explains data assets."""


def main() -> None:
    """Run a command; what goes wrong on purpose is one message and an exit code of 2."""
    try:
        code = cli.main(prog_name="servo", standalone_mode=False)
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
        print(f"servo: {error}", file=sys.stderr)
        code = 2
    except (KeyboardInterrupt, click.Abort):
        code = 130
    except BrokenPipeError:
        # The reader (head, less) has seen enough. Python would complain again when it closes stdout.
        sys.stderr.close()
        code = 0
    sys.exit(code if isinstance(code, int) else 0)
