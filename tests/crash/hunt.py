"""A longer hunt: deaths at random, from one seed to the next. `make crash ROUNDS=1000`.

    python -m tests.crash.hunt ROUNDS [FIRST]

A round that fails is told with its seed, and its folder is kept. A seed says where a process is to
die, not how its threads take turns: it may take a few times to see the same again.
"""

import sys
from collections import Counter

from tests.crash.aftermath import lines
from tests.crash.lives import ENDED, KILLED, Nursery, a_folder, calm, random_lives


def main(rounds: int, first: int) -> int:
    failed, deaths = 0, Counter[str]()
    with Nursery() as nursery:
        with a_folder() as folder:
            usual = calm(nursery, folder)
        for seed in range(first, first + rounds):
            try:
                with a_folder() as folder:
                    for lives in random_lives(seed, folder, usual):
                        for life, status in zip(lives, nursery.live_together(lives), strict=True):
                            assert status in (KILLED, ENDED), f"{life} ended with {status}"
                            if status == KILLED:
                                deaths["at some moment" if life.at is None else life.at] += 1
                    assert nursery.end(folder).outcome == usual.outcome, "it came to something else"
            except AssertionError as error:
                failed += 1
                wrong = "\n".join(lines(folder, "stderr"))
                _say(f"seed {seed}: {error}\n{wrong}\n{folder} is kept")
            if (seed - first + 1) % 100 == 0:
                _say(f"{seed - first + 1} rounds, {deaths.total()} deaths, {failed} failed")
    _say(f"{rounds} rounds, {deaths.total()} deaths at {len(deaths)} places, {failed} failed")
    return 1 if failed else 0


def _say(what: str) -> None:
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]) if sys.argv[2:] else 0))
