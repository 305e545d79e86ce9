"""What may be in the repository at all: no registry addresses, no tokens, a lock with hashes."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.house.source import ROOT

# Put together from halves, so that this file does not contain what it looks for.
REGISTRIES = [
    "pypi" + r"\.org",
    "files" + r"\.pythonhosted",
    "python" + r"hosted\.org",
    "registry" + r"\.npm",
    "registry" + r"\.yarnpkg",
    "--(extra-)?" + "index-url",
    "(extra-)?index[-_]url" + r"\s*=",
    "--find" + "-links",
    "//[^/\\s:@]+:[^/\\s:@]+" + "@",
]
TOKENS = [
    "AKIA" + "[0-9A-Z]{16}",
    "gh[pousr]_" + "[A-Za-z0-9]{30,}",
    "github_" + "pat_[A-Za-z0-9_]{20,}",
    "glpat-" + "[A-Za-z0-9_-]{20,}",
    "xox[abpr]-" + "[A-Za-z0-9-]{10,}",
    "AIza" + "[0-9A-Za-z_-]{35}",
    "-----BEGIN " + "[A-Z ]*PRIVATE KEY",
    "pypi-" + "AgE[A-Za-z0-9_-]{20,}",
]
FORBIDDEN = re.compile("|".join(REGISTRIES + TOKENS))
IGNORED_FOLDERS = {".git", ".venv", "node_modules", "__pycache__"}


def repository_files() -> list[Path]:
    """What is committed or would be; without git (an unpacked archive), everything that is there."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    if listed.returncode == 0:
        paths = [ROOT / name for name in listed.stdout.split("\0") if name]
    else:
        paths = []
        for folder, folders, names in os.walk(ROOT):
            folders[:] = [name for name in folders if name not in IGNORED_FOLDERS]
            paths += [Path(folder) / name for name in names]
    return sorted(path for path in paths if path.is_file())


def forbidden_in(text: str) -> list[str]:
    return [
        f"line {number}: {found.group()[:24]}"
        for number, line in enumerate(text.splitlines(), 1)
        for found in FORBIDDEN.finditer(line)
    ]


def unhashed(lock: str) -> list[str]:
    """Requirements of a lock file that name no hash, or no exact version."""
    joined = re.sub(r"\\\n\s*", " ", lock)
    requirements = [
        line for line in joined.splitlines() if line.strip() and not line.lstrip().startswith("#")
    ]
    return [
        line.split(" ")[0]
        for line in requirements
        if not re.match(r"[a-z0-9-]+==[^ ]+ ", line)
        or not re.search(r"--hash=sha256:[0-9a-f]{64}", line)
    ]


def test_no_registry_address_and_no_token_in_any_file() -> None:
    problems = [
        f"{path.relative_to(ROOT)}: {problem}"
        for path in repository_files()
        for problem in forbidden_in(path.read_text(errors="replace"))
    ]
    assert problems == []


@pytest.mark.parametrize(
    "text",
    [
        "https://" + "pypi" + ".org/simple",
        "--index" + "-url https://mirror.example/simple",
        "index" + "-url = https://mirror.example/simple",
        "https://files" + ".python" + "hosted.org/packages/x.whl",
        '"resolved": "https://registry' + '.npmjs.org/react"',
        "https://someone:secret" + "@mirror.example/simple",
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "ghp_" + "a" * 36,
    ],
)
def test_a_registry_address_or_token_is_found(text: str) -> None:
    assert forbidden_in(text)


def test_ordinary_text_is_left_alone() -> None:
    assert forbidden_in("see https://example.com:8080/a@b, and the index of asset urls") == []


def test_every_locked_requirement_has_an_exact_version_and_a_hash() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert "msgspec==" in lock
    assert unhashed(lock) == []


def test_a_locked_requirement_without_a_hash_is_found() -> None:
    good = "click==8.1 \\\n    --hash=sha256:" + "0" * 64 + "\n"
    assert unhashed(good) == []
    assert unhashed(good + "rich==14.0\n") == ["rich==14.0"]
    assert unhashed("# note\nclick>=8.1 \\\n    --hash=sha256:" + "0" * 64) == ["click>=8.1"]


def test_the_first_screen_of_the_readme_names_the_two_commands() -> None:
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:40])
    assert "make demo" in first_screen
    assert "make test" in first_screen


def test_contributing_stays_one_screen() -> None:
    assert len((ROOT / "CONTRIBUTING.md").read_text().splitlines()) <= 60
