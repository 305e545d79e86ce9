"""Check that links in the documentation lead somewhere.

    python tools/check_docs_links.py [FOLDER]

Reads every Markdown file of the repository. A relative link must name a file or folder that exists
inside the repository, in its exact spelling; an anchor must be a heading of the page it points into,
or a line that the source file has (`keys.py#L10`). Addresses on the web are not visited.
"""

from __future__ import annotations

import os
import re
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

SKIPPED = {".git", ".venv", "node_modules", "__pycache__", ".hypothesis", ".pytest_cache"}

_FENCE = re.compile(r"^\s{0,3}(`{3,}|~{3,})")
_INLINE_CODE = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_INLINE_LINK = re.compile(
    r"!?\[(?:[^\[\]]|\[[^\]]*\])*\]\(\s*<?([^)\s>]+)>?(?:\s+\"[^\"]*\")?\s*\)"
)
_REFERENCE = re.compile(r"^\s{0,3}\[[^\]]+\]:\s+<?([^\s>]+)>?")
_HEADING = re.compile(r"^\s{0,3}#{1,6}\s+(.*?)\s*#*\s*$")
_ANCHOR = re.compile(r"<a\s+(?:id|name)=[\"']([^\"']+)[\"']")
_SCHEME = re.compile(r"^[a-z][a-z0-9+.-]*:", re.IGNORECASE)


def main() -> int:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).parent.parent).resolve()
    pages = sorted(markdown_files(root))
    problems = [problem for page in pages for problem in problems_of(page, root)]
    for problem in problems:
        print(problem)
    if not problems:
        print(f"links of {len(pages)} pages lead somewhere")
    return 1 if problems else 0


def markdown_files(root: Path) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in SKIPPED]
        yield from (Path(folder) / name for name in names if name.endswith(".md"))


def problems_of(page: Path, root: Path) -> list[str]:
    where = page.relative_to(root)
    return [
        f"{where}:{line}: {target}: {problem}"
        for line, target in links(page.read_text())
        if (problem := problem_of(page, target, root))
    ]


def problem_of(page: Path, target: str, root: Path) -> str | None:
    """What is wrong with one link, or nothing."""
    if _SCHEME.match(target) or target.startswith("//"):
        return None
    path_part, _, anchor = target.partition("#")
    path = Path(os.path.normpath(page.parent / unquote(path_part))) if path_part else page
    if path_part.startswith("/"):
        return "starts with a slash; write it relative to this page"
    if not path.is_relative_to(root):
        return "leads out of the repository"
    if not exists_exactly(path, root):
        return "there is no such file"
    if not anchor:
        return None
    if path.suffix == ".md":
        if unquote(anchor) not in anchors(path.read_text()):
            return f"{path.relative_to(root)} has no heading #{anchor}"
        return None
    lines = re.fullmatch(r"L(\d+)(?:-L(\d+))?", anchor)
    if path.is_file() and lines:
        last = max(int(number) for number in lines.groups() if number)
        return (
            None if last <= len(path.read_text().splitlines()) else "the file is shorter than that"
        )
    return f"#{anchor} is neither a heading nor a line"


def exists_exactly(path: Path, root: Path) -> bool:
    """Like `exists`, but with the spelling as it is on disk, also where the disk does not care."""
    current = root
    for part in path.relative_to(root).parts:
        if not current.is_dir() or part not in os.listdir(current):
            return False
        current = current / part
    return True


def links(text: str) -> Iterator[tuple[int, str]]:
    """Targets of links with their line, leaving code alone."""
    for number, line in prose(text):
        shown = _INLINE_CODE.sub("code", line)
        yield from ((number, found.group(1)) for found in _INLINE_LINK.finditer(shown))
        reference = _REFERENCE.match(shown)
        if reference:
            yield number, reference.group(1)


def anchors(text: str) -> set[str]:
    """Names that a page can be entered at: its headings, and `<a id=…>` where it says so."""
    found: set[str] = set()
    for _, line in prose(text):
        found.update(_ANCHOR.findall(line))
        heading = _HEADING.match(line)
        if heading:
            plain = slug(heading.group(1))
            name, repeat = plain, 0
            while name in found:
                repeat += 1
                name = f"{plain}-{repeat}"
            found.add(name)
    return found


def slug(heading: str) -> str:
    """A heading as the web view of a repository names it: lower case, hyphens, no punctuation."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading)
    text = re.sub(r"<[^>]+>", "", text).strip().lower()
    kept = (c for c in text if c in " -_" or unicodedata.category(c)[0] in "LNM")
    return "".join(kept).replace(" ", "-")


def prose(text: str) -> Iterator[tuple[int, str]]:
    """Lines outside fenced code, numbered from 1."""
    fence = ""
    for number, line in enumerate(text.splitlines(), 1):
        mark = _FENCE.match(line)
        if fence:
            if mark and mark.group(1).startswith(fence) and line.strip() == mark.group(1):
                fence = ""
        elif mark:
            fence = mark.group(1)
        else:
            yield number, line


if __name__ == "__main__":
    raise SystemExit(main())
