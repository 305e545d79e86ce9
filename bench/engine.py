"""What orchestrating costs: a chain of no-ops hop by hop, a fan-out, and whether it follows the size.

    python bench/engine.py

Tasks are Python functions that do nothing and write no data, run inline; state is durable on this
machine's disk and published as always. Each figure is taken in a process of its own; sizes take
turns, and the fastest counts. A raw append with fdatasync of as many bytes as a hop writes is
measured in the same process, between the hops. Making plans and imports are not timed.
"""

import asyncio
import json
import resource
import subprocess
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from time import perf_counter

from engines import CODE, chain, fan, folder, p50, raw_append, session
from report import figure
from servo.core.states import RunState
from servo.events.envelope import Placed
from servo.runtime import requests

BENCH = "engine"
CHAIN = 200
SIZES = (1_000, 10_000, 100_000)
TURNS = 3


async def hops(root: Path) -> dict[str, float]:
    """p50 from one durable result to the next, in a chain; and a raw append of the same bytes."""
    times: list[float] = []
    raw: list[float] = []
    size = 800
    async with session(root) as opened:
        for _ in range(4):
            marks: list[float] = []

            def changed(_: Sequence[Placed], marks: list[float] = marks) -> None:
                marks.append(perf_counter())

            opened.engine.changed.append(changed)
            ledger = root / "local" / "main" / "ledger"
            before = sum(path.stat().st_size for path in ledger.glob("*.jsonl"))
            found = await requests.trigger(opened.engine, chain(CHAIN), code_ref=CODE)
            ended = await opened.ended(found.run_id)
            assert ended.state is RunState.SUCCEEDED
            opened.engine.changed.remove(changed)
            times += [later - earlier for earlier, later in pairwise(marks)]
            size = (sum(p.stat().st_size for p in ledger.glob("*.jsonl")) - before) // CHAIN
            raw += raw_append(root, size, CHAIN)
    return {"hop": p50(times), "raw": p50(raw), "bytes": size}


async def wide(root: Path, width: int) -> dict[str, float]:
    """Seconds per task of a fan-out, from asking for it to its end, and the most memory it took."""
    plan = fan(width)
    async with session(root) as opened:
        started = perf_counter()
        found = await requests.trigger(opened.engine, plan, code_ref=CODE)
        ended = await opened.ended(found.run_id)
        took = perf_counter() - started
        assert ended.state is RunState.SUCCEEDED and ended.counts == {"SUCCEEDED": width}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"per_task": took / width, "peak_mb": peak}


def child(what: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, what], check=True, capture_output=True, text=True
    )
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    best_hop = min((child("chain") for _ in range(TURNS)), key=lambda found: found["hop"])
    hop, raw = best_hop["hop"] * 1e3, best_hop["raw"] * 1e3
    print(f"chain of {CHAIN}: {hop:.3f} ms a hop, raw append {raw:.3f} ms")
    figure(BENCH, "chain_hop_p50", hop, "ms", "<0.8", hop < 0.8)
    figure(BENCH, "chain_hop_over_raw", hop / raw, "ratio", "<3", hop / raw < 3)

    found: dict[int, list[dict[str, float]]] = {size: [] for size in SIZES}
    for turn in range(TURNS):
        for size in SIZES:
            if size < 100_000 or turn < 2:
                found[size].append(child(str(size)))
    fastest = {size: min(f["per_task"] for f in found[size]) * 1e3 for size in SIZES}
    for size in SIZES:
        peak = max(f["peak_mb"] for f in found[size])
        print(f"fan-out of {size:,}: {fastest[size]:.3f} ms a task, {peak:.0f} MB")
        if size == SIZES[0]:
            figure(BENCH, "fan_1000_per_task", fastest[size], "ms", "<0.3", fastest[size] < 0.3)
        else:
            ratio = fastest[size] / fastest[SIZES[0]]
            figure(BENCH, f"fan_{size}_over_1000", ratio, "ratio", "<1.5", ratio < 1.5)
            figure(BENCH, f"fan_{size}_peak", peak, "MB", "<1000", peak < 1000)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        with folder() as name:
            if sys.argv[1] == "chain":
                print(json.dumps(asyncio.run(hops(Path(name)))))
            else:
                print(json.dumps(asyncio.run(wide(Path(name), int(sys.argv[1])))))
    else:
        main()
