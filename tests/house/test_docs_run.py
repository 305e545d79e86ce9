"""Python in the documentation runs. A fragment that cannot stand alone is fenced as `py`."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.house.source import ROOT

_BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
PAGES = {
    str(page.relative_to(ROOT)): "\n".join(blocks)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
    if (blocks := _BLOCK.findall(page.read_text()))
}


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
