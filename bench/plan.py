"""How long a plan takes, what it holds in memory, and whether both follow its size.

    python bench/plan.py

100 assets in 10 layers, each with 3 upstreams in the layer above, by day, identity mapping; with
10, 100 and 1,000 days that is 1,000, 10,000 and 100,000 tasks. Each size is planned in a process
of its own, over and over for half a second (twice at least), as timeit does; peak memory is that of
the process. The sizes take turns, so that a busy moment of the machine meets them alike, and the
fastest counts. Imports are not timed.

Partition questions (count, membership, n-th key, slice, range, missing) are asked of 100 years of
hours × 50 regions × 200 tenants × 3 tiers; each is timed from cold, in a process of its own.
"""

import json
import resource
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from time import perf_counter

from report import figure
from servo.core.definitions import AssetDefinition, Dependency, Manifest
from servo.core.keys import AssetKey
from servo.core.partitions import Partitioning
from servo.core.plan import PlanRequest, dump
from servo.core.planner import PlanningState, make_plan
from servo.sdk.partitions import DailyPartition, HourlyPartition, StaticPartition

LAYERS, WIDTH, UPSTREAMS = 10, 10, 3
SIZES = (10, 100, 1_000)
TURNS = 5
START = datetime(2024, 1, 1, tzinfo=UTC)
QUESTIONS = ("count", "membership", "nth_key", "slice", "range", "missing")


def layers(days: int) -> tuple[Manifest, PlanningState]:
    partitions = Partitioning((DailyPartition("date", start="2024-01-01"),))
    assets = []
    for layer in range(LAYERS):
        for place in range(WIDTH):
            above = [(place + step) % WIDTH for step in range(UPSTREAMS)] if layer else []
            assets.append(
                AssetDefinition(
                    key=AssetKey("bench", f"layer{layer}_{place}"),
                    partitions=partitions,
                    dependencies=tuple(
                        Dependency(
                            upstream=AssetKey("bench", f"layer{layer - 1}_{up}"),
                            parameter=f"input{up}",
                        )
                        for up in above
                    ),
                    code_version="v1",
                )
            )
    return Manifest(assets=tuple(assets)), PlanningState(START + timedelta(days=days))


def plan_once(days: int) -> dict[str, float]:
    """In this process: seconds and peak megabytes of one plan."""
    manifest, state = layers(days)
    request = PlanRequest(selection="*", partitions={"date": ("..",)})
    times: list[float] = []
    plan = make_plan(request, *layers(0))
    while sum(times) < 0.5 or len(times) < 2:
        before = perf_counter()
        plan = make_plan(request, manifest, state)
        times.append(perf_counter() - before)
    took = min(times)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    before = perf_counter()
    size = len(dump(plan))
    wrote = perf_counter() - before
    edges = sum(len(task.upstreams) for task in plan.tasks)
    return {
        "tasks": len(plan.tasks),
        "edges": edges,
        "s": took,
        "mb": peak,
        "dump_s": wrote,
        "bytes": size,
    }


def ask(question: str) -> dict[str, float]:
    """In this process: milliseconds of one question, and megabytes it added. Counting includes
    binding the definition to a moment; the others are asked of a set that is bound."""
    partitioning = Partitioning(
        (
            HourlyPartition("hour", start="2000-01-01"),
            StaticPartition("region", [f"region-{i}" for i in range(50)]),
            StaticPartition("tenant", [f"tenant-{i}" for i in range(200)]),
            StaticPartition("tier", ["gold", "silver", "bronze"]),
        )
    )
    now = datetime(2100, 1, 1, tzinfo=UTC)
    if question == "count":
        return timed(lambda: len(partitioning.keys(now)))
    keys = partitioning.keys(now)
    if question == "membership":
        middle = keys[len(keys) // 2]
        return timed(lambda: middle in keys)
    if question == "nth_key":
        return timed(lambda: keys[12_345_678_901])
    if question == "slice":
        return timed(lambda: list(keys[10_000_000_000:10_000_000_100]))
    if question == "range":
        first, last = keys[0], keys[20_000_000_001]
        return timed(lambda: len(keys.between(first, last)))
    assert question == "missing", question
    present = [keys[i * 2_629_799 + i % 7] for i in range(10_000)]
    return timed(lambda: len(keys.missing(present)))


def timed(act: Callable[[], object]) -> dict[str, float]:
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    before = perf_counter()
    answer = act()
    took = perf_counter() - before
    assert answer
    added = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - memory) / 1024
    return {"ms": took * 1000, "mb": added}


def elsewhere(*arguments: str) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, __file__, *arguments], check=True, capture_output=True, text=True
    )
    answer: dict[str, float] = json.loads(done.stdout)
    return answer


def main() -> int:
    if sys.argv[1:2] == ["--days"]:
        print(json.dumps(plan_once(int(sys.argv[2]))))
        return 0
    if sys.argv[1:2] == ["--ask"]:
        print(json.dumps(ask(sys.argv[2])))
        return 0
    runs: dict[int, list[dict[str, float]]] = {days: [] for days in SIZES}
    for _ in range(TURNS):
        for days in SIZES:
            runs[days].append(elsewhere("--days", str(days)))
    best = {days: min(each, key=lambda run: run["s"]) for days, each in runs.items()}
    per_task = {days: run["s"] / run["tasks"] * 1e6 for days, run in best.items()}
    for days, run in best.items():
        print(
            f"{run['tasks']:>7,.0f} tasks  {run['edges']:>7,.0f} edges  {run['s']:6.2f} s"
            f"  {per_task[days]:5.1f} µs a task  {run['mb']:4.0f} MB peak"
            f"  (written: {run['dump_s']:.2f} s, {run['bytes'] / 1e6:.1f} MB)"
        )
    answers = {
        q: min((elsewhere("--ask", q) for _ in range(TURNS)), key=lambda a: a["ms"])
        for q in QUESTIONS
    }
    for question, answer in answers.items():
        print(f"{question:>10} of 26 billion  {answer['ms']:7.3f} ms  {answer['mb']:5.1f} MB more")

    large = best[SIZES[-1]]
    ratio = max(per_task.values()) / min(per_task.values())
    missing = answers["missing"]["mb"]
    figures = [
        ("plan_100k_tasks_s", large["s"], "s", 3.0),
        ("plan_100k_tasks_peak_mb", large["mb"], "MB", 500.0),
        ("time_per_task_1k_to_100k_ratio", ratio, "x", 1.5),
        *(
            (f"{question}_of_26_billion_ms", answer["ms"], "ms", 50 if question == "missing" else 5)
            for question, answer in answers.items()
        ),
        ("missing_of_26_billion_mb", missing, "MB", 50.0),
    ]
    for name, value, unit, limit in figures:
        figure("plan", name, value, unit, f"<{limit:g}", value < limit)
    return 0 if all(value < limit for _, value, _, limit in figures) else 1


if __name__ == "__main__":
    raise SystemExit(main())
