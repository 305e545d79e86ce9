"""How a benchmark reports: lines for people first, then one JSON line per figure for machines."""

from __future__ import annotations

import json


def figure(bench: str, figure: str, value: float, unit: str, target: str, ok: bool) -> None:
    """Print one figure. `target` is a text such as "<80"; `ok` says whether it was met."""
    print(
        json.dumps(
            {
                "bench": bench,
                "figure": figure,
                "value": round(value, 3),
                "unit": unit,
                "target": target,
                "ok": ok,
            }
        ),
        flush=True,
    )
