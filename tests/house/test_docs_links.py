"""Links in the documentation lead somewhere, and a broken one is noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.house.source import ROOT
from tools.check_docs_links import anchors, links, markdown_files, problems_of, slug


def test_every_link_of_the_documentation_leads_somewhere() -> None:
    pages = list(markdown_files(ROOT))
    assert ROOT / "README.md" in pages
    assert [problem for page in pages for problem in problems_of(page, ROOT)] == []


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("# First\n\n## A `code` heading: yes\n\n## First\n")
    (tmp_path / "keys.py").write_text("one = 1\ntwo = 2\n")
    return tmp_path


@pytest.mark.parametrize(
    "text",
    [
        "[a](docs/a.md)",
        "[a](docs/a.md#first)",
        "[a](docs/a.md#first-1)",
        "[a](docs/a.md#a-code-heading-yes)",
        "[a](<docs/a.md>)",
        '[a](docs/a.md "title")',
        "[the folder](docs)",
        "[two](keys.py#L2)",
        "[both](keys.py#L1-L2)",
        "# Here\n[up](#here)",
        "[web](https://example.com/nowhere) and <https://example.com>",
        "`[not a link](missing.md)`",
        "```\n[not a link](missing.md)\n```",
        "[ref]\n\n[ref]: docs/a.md",
    ],
)
def test_a_good_link_is_left_alone(folder: Path, text: str) -> None:
    page = folder / "page.md"
    page.write_text(text)
    assert problems_of(page, folder) == []


@pytest.mark.parametrize(
    "text",
    [
        "[a](docs/missing.md)",
        "[a](docs/A.md)",
        "[a](docs/a.md#second)",
        "[a](#nowhere)",
        "[a](keys.py#L3)",
        "[a](keys.py#two)",
        "[a](../outside.md)",
        "[a](/docs/a.md)",
        "![image](picture.png)",
        "[ref]\n\n[ref]: missing.md",
        "```\ncode\n```\n[a](missing.md)",
        "| [in a table](missing.md) | x |",
        "[`code` inside](missing.md)",
    ],
)
def test_a_broken_link_is_found(folder: Path, text: str) -> None:
    page = folder / "page.md"
    page.write_text(text)
    assert len(problems_of(page, folder)) == 1


def test_the_line_of_a_link_is_named() -> None:
    assert list(links("\n\nsee [a](b.md)")) == [(3, "b.md")]


def test_headings_are_named_as_the_web_view_names_them() -> None:
    assert slug("9. Layers: who knows whom?") == "9-layers-who-knows-whom"
    assert slug("`servo plan` – one") == "servo-plan--one"
    assert anchors('<a id="x"></a>\n# Ü') == {"x", "ü"}
