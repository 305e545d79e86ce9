"""The seeds that CI runs: a range, and those that failed once, kept in seeds.txt."""

from pathlib import Path

FILE = Path(__file__).with_name("seeds.txt")
CI = list(range(144))


def kept() -> list[int]:
    """Seeds of worlds that failed once, one in a line; what follows a `#` says why."""
    lines = FILE.read_text().splitlines() if FILE.exists() else []
    return [int(text) for line in lines if (text := line.partition("#")[0].strip())]
