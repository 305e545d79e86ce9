"""What the documentation shows is what happens.

Python runs; a fragment that cannot stand alone is fenced as `py`.

A page that begins with `<!-- runs -->` is followed like a reader would, in an empty folder with
`examples/` beside it and `servo` on the path:

* a block whose first line is `# name.py` or `# name.toml` is written to that file;
* a block fenced as `sh` is run, and must succeed unless what it shows is an error of `servo`;
* a block fenced as `text` right after it is what it prints. `…` stands for anything within a line,
  and alone on a line for any number of lines.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.source import ROOT

MARK = "<!-- runs -->"
_PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CAPTION = re.compile(r"# ([\w./-]+\.(?:py|toml))\n")

TEXTS = {
    str(page.relative_to(ROOT)): page.read_text()
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
}
PAGES = {
    page: "\n".join(blocks) for page, text in TEXTS.items() if (blocks := _PYTHON.findall(text))
}
FOLLOWED = [page for page, text in TEXTS.items() if text.startswith(MARK)]


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    script = folder / "page.py"
    script.write_text(code)
    return subprocess.run(
        [sys.executable, "-W", "error", str(script)], cwd=folder, capture_output=True, text=True
    )


def test_the_readme_shows_an_asset() -> None:
    assert "@asset" in PAGES["README.md"]


@pytest.mark.parametrize("page", PAGES)
def test_the_python_of_a_page_runs(page: str, tmp_path: Path) -> None:
    result = run(PAGES[page], tmp_path)
    assert result.returncode == 0, result.stderr


def test_python_that_does_not_run_is_noticed(tmp_path: Path) -> None:
    assert run("from servo import no_such_name", tmp_path).returncode != 0


# ---------------------------------------------------------------- pages that are followed


def follow(text: str, folder: Path) -> Iterator[str]:
    """Do what a page says; yields what does not happen as it says."""
    blocks = [(found[1], found[2]) for found in _BLOCK.finditer(text)]
    for (kind, body), (after, shown) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
        if kind not in ("sh", "text") and (caption := _CAPTION.match(body)):
            path = folder / caption[1]
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(body)
        elif kind == "sh":
            result = shell(body, folder)
            said = result.stdout
            expected = shown if after == "text" else None
            if result.returncode and not (expected or "").startswith("servo: "):
                yield f"$ {body}failed with {result.returncode}:\n{said}"
            elif expected is not None and not shows(expected, said):
                yield f"$ {body}should print\n{expected}\nand printed\n{said}"


def shell(commands: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        # A page edits a file within the second in which it was compiled, keeping its size: Python
        # would take the compiled one.
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(
        ["bash", "-euo", "pipefail", "-c", commands],
        cwd=folder,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def shows(expected: str, printed: str) -> bool:
    """Whether a `text` block is a picture of what was printed."""
    pattern = ""
    for line in expected.strip("\n").splitlines():
        pattern += (
            r"(?:.*\n)*"
            if line.strip() == "…"
            else ".*".join(map(re.escape, line.rstrip().split("…"))) + r"[ ]*\n"
        )
    return re.fullmatch(pattern, printed.strip("\n") + "\n") is not None


def test_the_quickstart_and_the_guides_are_followed() -> None:
    guides = [page for page in TEXTS if page.startswith("docs/how-to/")]
    assert {"docs/quickstart.md", *guides} <= set(FOLLOWED)


@pytest.mark.parametrize("page", FOLLOWED)
def test_a_page_that_is_followed_tells_what_happens(page: str, tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "examples", tmp_path / "examples", ignore=shutil.ignore_patterns("__pycache__")
    )
    problems = list(follow(TEXTS[page], tmp_path))
    assert not problems, "\n\n".join(problems)


def test_files_commands_and_output_of_a_page_are_followed(tmp_path: Path) -> None:
    file = "# a/b.toml\nx = 1\n"
    page = f"```toml\n{file}```\n\n```sh\ncat a/b.toml\n```\n\n```text\n{file}```\n"
    assert list(follow(page, tmp_path)) == []


@pytest.mark.parametrize(
    "page",
    [
        "```sh\necho one\n```\n\n```text\ntwo\n```\n",
        "```sh\necho one; echo two\n```\n\n```text\none\n```\n",
        "```sh\nfalse | true\n```\n",
        "```sh\nservo plan\n```\n\n```text\n0 tasks …\n```\n",
        "```sh\nservo plan --now yesterday\n```\n\n```text\nservo: all is well\n```\n",
    ],
)
def test_a_page_that_lies_is_noticed(page: str, tmp_path: Path) -> None:
    assert len(list(follow(page, tmp_path))) == 1


@pytest.mark.parametrize(
    ("expected", "printed", "same"),
    [
        ("a", "a\n", True),
        ("a…c", "abc", True),
        ("a…c", "a\nc", False),
        ("a\n…\nc", "a\nc", True),
        ("a\n…\nc", "a\n\nb\nb\nc", True),
        ("a\n…\nc", "a\nb", False),
        ("a.c", "abc", False),
        ("a", "a  \n", True),
    ],
)
def test_an_ellipsis_stands_for_what_a_page_leaves_out(
    expected: str, printed: str, same: bool
) -> None:
    assert shows(expected, printed) is same
