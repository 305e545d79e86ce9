"""`servo` as a process of its own, and, where thousands of calls are wanted, inside this one."""

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from io import BytesIO, TextIOWrapper
from pathlib import Path

from servo.cli.main import main
from tests.house.source import ROOT

SERVO = Path(sys.executable).with_name("servo")
SHOP = ROOT / "examples" / "shop"
NOW = "2024-02-01T06:00:00Z"

Done = subprocess.CompletedProcess[str]


def environment(**changes: str) -> dict[str, str]:
    """Little of ours, so that a developer's settings change nothing."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR") if name in os.environ}
    return {**kept, "LC_ALL": "C.UTF-8", **changes}


def run(*arguments: str | bytes, cwd: Path | None = None, **env: str) -> Done:
    return subprocess.run(
        [str(SERVO), *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        cwd=cwd,
        env=environment(**env),
        timeout=60,
    )


def run_here(arguments: Sequence[str]) -> Done:
    """The same without a new process. An error that nobody expects comes through."""
    streams = [BytesIO(), BytesIO()]
    out, err = (TextIOWrapper(stream, encoding="utf-8", write_through=True) for stream in streams)
    before, sys.argv = sys.argv, ["servo", *arguments]
    try:
        with redirect_stdout(out), redirect_stderr(err):
            main()
    except SystemExit as end:
        assert isinstance(end.code, int)
        said = [stream.getvalue().decode() for stream in streams]
        return subprocess.CompletedProcess(["servo", *arguments], end.code, *said)
    finally:
        sys.argv = before
    raise AssertionError("main ends with an exit code")


def refused(done: Done) -> str:
    """The message of a command that found something to mend."""
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("servo: ") and "Traceback" not in done.stderr
    return done.stderr.removeprefix("servo: ").rstrip("\n")
