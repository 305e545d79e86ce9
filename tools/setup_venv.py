"""Make `.venv` hold exactly what `requirements.lock` says, and Servo itself in editable form.

    python3 tools/setup_venv.py

Called by every `make` target, so the case that matters is "nothing to do": one hash of two files.
Runs on the system's Python with nothing installed, which is why it imports the standard library only.

The way there, each step chosen by measuring on two cores; together 6 s, or 12 s with uv's cache empty:

1. a bare environment; the system's pip installs into it if there is one, otherwise `ensurepip` puts
   a pip inside (5 s more);
2. `uv`, at the version and hashes of the lock, by pip (3 s);
3. the rest of the lock by uv, compiled (pip took 18 s for this step alone). Should uv fail, pip
   does it: pip knows mirrors, proxies and certificates from settings that uv does not read.

The stamp is written last, so an interrupted set-up is simply done again.
"""

from __future__ import annotations

import fcntl
import hashlib
import importlib.metadata
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
LOCK = ROOT / "requirements.lock"
STAMP = VENV / ".servo-stamp"
OLDEST = (3, 11)


class CannotSetUp(Exception):
    """One sentence for the person at the terminal."""


def main() -> int:
    # Two makes at once take turns; the lock is on this file, so nothing is left behind.
    with open(__file__, "rb") as turnstile:
        fcntl.flock(turnstile, fcntl.LOCK_EX)
        try:
            set_up()
        except CannotSetUp as error:
            print(f"setup: {error}", file=sys.stderr)
            return 1
    return 0


def set_up() -> None:
    if sys.version_info < OLDEST:
        found = ".".join(map(str, sys.version_info[:3]))
        raise CannotSetUp(
            f"Servo needs Python 3.11 or newer and this is {found}; "
            "name a newer one, for example `make PYTHON=python3.12 test`."
        )
    if not LOCK.exists():
        raise CannotSetUp("requirements.lock is missing; get it back with `git checkout`.")
    stamp = interpreter() + "\n" + contents() + "\n"
    before = STAMP.read_text() if STAMP.exists() else ""
    if before == stamp and (VENV / "bin" / "servo").exists():
        return

    began = time.monotonic()
    print("setup: bringing .venv up to requirements.lock (only when it changed)", flush=True)
    STAMP.unlink(missing_ok=True)
    # Another interpreter, another place or an unfinished set-up: start from nothing.
    fresh = before.partition("\n")[0] != interpreter()
    pip = create() if fresh else pip_command()
    install_locked(pip, fresh=fresh)
    install_servo()
    STAMP.write_text(stamp)
    print(f"setup: done in {time.monotonic() - began:.1f} s", flush=True)


def interpreter() -> str:
    """What a virtual environment is bound to: this Python and this folder."""
    return f"{sys.version_info[:3]} {os.path.realpath(sys.executable)} {ROOT}"


def contents() -> str:
    digest = hashlib.sha256()
    for path in (LOCK, ROOT / "pyproject.toml", Path(__file__)):
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    return digest.hexdigest()


def create() -> list[str]:
    """A new, empty environment; answers how to call a pip that installs into it."""
    if VENV.exists():
        shutil.rmtree(VENV)
    if system_pip():
        run([sys.executable, "-m", "venv", "--without-pip", str(VENV)])
    elif importlib.util.find_spec("ensurepip"):
        run([sys.executable, "-m", "venv", str(VENV)])
    else:
        raise CannotSetUp(
            "this python3 can make no virtual environments; "
            "run `apt-get install python3-venv` and then the same make command again."
        )
    return pip_command()


def pip_command() -> list[str]:
    if (VENV / "bin" / "pip").exists() or not system_pip():
        return [str(PYTHON), "-m", "pip"]
    return [sys.executable, "-m", "pip", "--python", str(PYTHON)]


def system_pip() -> bool:
    """Is there a pip beside this Python that knows `--python` (22.3 or newer)?"""
    try:
        major, minor = importlib.metadata.version("pip").split(".")[:2]
    except importlib.metadata.PackageNotFoundError:
        return False
    return (int(major), int(minor)) >= (22, 3)


def install_locked(pip: list[str], *, fresh: bool) -> None:
    if not (VENV / "bin" / "uv").exists():
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as only_uv:
            only_uv.write(locked_block("uv"))
            only_uv.flush()
            run([*pip, "install", *QUIET, "--no-deps", "--require-hashes", "-r", only_uv.name])
    by_uv = run(
        # sync also removes what the lock no longer names. Compiled once here, not at every start.
        [str(VENV / "bin" / "uv"), "pip", "sync", "--quiet", "--require-hashes"]
        + ["--compile-bytecode", "--python", str(PYTHON), str(LOCK)],
        may_fail=True,
    )
    if by_uv == 0:
        return
    print(
        "setup: uv could not install the lock (see above); trying pip, which is slower", flush=True
    )
    if not fresh:
        pip = create()  # pip does not remove what the lock no longer names
    run([*pip, "install", *QUIET, "--no-deps", "--require-hashes", "-r", str(LOCK)])


def install_servo() -> None:
    """Editable, and built by the backend of the lock: nothing is fetched here."""
    run(
        [str(VENV / "bin" / "uv"), "pip", "install", "--quiet", "--no-deps", "--offline"]
        + ["--no-build-isolation", "--python", str(PYTHON), "--editable", str(ROOT)]
    )


# -qq shows errors and hides warnings about the machine that the reader can do nothing about.
QUIET = ["-qq", "--disable-pip-version-check", "--no-input", "--root-user-action=ignore"]


def locked_block(package: str) -> str:
    """One requirement of the lock with its hashes, as written there."""
    block: list[str] = []
    for line in LOCK.read_text().splitlines():
        if line.startswith(f"{package}=="):
            block.append(line)
        elif block and line.startswith("    --hash="):
            block.append(line)
        elif block:
            break
    if not block:
        raise CannotSetUp(
            f"requirements.lock does not name {package}; get it back with `git checkout`."
        )
    return "\n".join(block) + "\n"


def run(command: list[str], *, may_fail: bool = False) -> int:
    # An index of the caller's choosing still counts; only what points at another environment is cut.
    environment = {k: v for k, v in os.environ.items() if k not in ("VIRTUAL_ENV", "PYTHONPATH")}
    code = subprocess.run(
        command, stdin=subprocess.DEVNULL, env=environment, check=False
    ).returncode
    if code and not may_fail:
        raise CannotSetUp(f"this command failed with {code} (see above): {' '.join(command)}")
    return code


if __name__ == "__main__":
    raise SystemExit(main())
