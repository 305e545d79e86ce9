"""Live through many simulated worlds, on all cores, and keep the seeds of those that fail.

    python tools/hunt.py 10000            seeds 0 to 9,999
    python tools/hunt.py 10000 50000      seeds 50,000 to 59,999

A seed that fails is printed with its reason and written to tests/sim/seeds.txt, which the tests replay.
Exit code 1 if there was one.
"""

import multiprocessing
import sys
import time
from collections import Counter
from pathlib import Path

KEPT = Path(__file__).parents[1] / "tests" / "sim" / "seeds.txt"
EVERY = 10.0


def live(seed: int) -> tuple[int, str | None, dict[str, int]]:
    from servo.testing.world import simulate

    try:
        return seed, None, dict(simulate(seed).counts)
    except AssertionError as error:
        return seed, str(error), {}


def keep(seed: int, reason: str) -> None:
    text = KEPT.read_text() if KEPT.exists() else ""
    if not any(line.partition("#")[0].strip() == str(seed) for line in text.splitlines()):
        first = reason.splitlines()[0].partition(": ")[2]
        KEPT.write_text(f"{text}{seed}  # {first[:90]}\n")


def main(count: int, first: int) -> int:
    began = said = time.monotonic()
    failed = []
    total: Counter[str] = Counter()
    # Processes that were started anew hold nothing of this one, and are replaced before they grow.
    spawn = multiprocessing.get_context("spawn")
    with spawn.Pool(maxtasksperchild=500) as pool:
        seeds = range(first, first + count)
        for number, found in enumerate(pool.imap_unordered(live, seeds, chunksize=4), start=1):
            seed, reason, counts = found
            total.update(counts)
            if reason is not None:
                failed.append(seed)
                keep(seed, reason)
                print(f"FAILED {reason}\n", flush=True)
            now = time.monotonic()
            if now - said > EVERY or number == count:
                said = now
                pace = number / (now - began)
                print(
                    f"{number:,} of {count:,} worlds, {pace:.1f} a second, {len(failed)} failed",
                    flush=True,
                )
    print("\nWhat happened in them:")
    for what, times in total.most_common():
        print(f"  {what:20} {times:10,}")
    if failed:
        print(f"\nSeeds that failed: {' '.join(map(str, sorted(failed)))} (kept in {KEPT})")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0))
