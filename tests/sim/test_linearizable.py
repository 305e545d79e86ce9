"""The checker of histories: known verdicts, all of them, and small histories tried exhaustively."""

import itertools
import json
import lzma
from pathlib import Path
from typing import Any

import pytest

from servo.testing.chance import Chance
from servo.testing.linearizable import is_linearizable

HISTORIES = Path(__file__).parents[3] / "shared/vectors/register_histories.jsonl.xz"


def test_every_public_history_gets_its_known_verdict() -> None:
    if not HISTORIES.exists():
        pytest.skip(f"the outside histories are not here: {HISTORIES}")
    with lzma.open(HISTORIES, "rt") as file:
        histories = [json.loads(line) for line in file]
    wrong = {
        history["id"]: verdict
        for history in histories
        # A budget that a worse search would not keep: 217 histories, a quarter of a second.
        if (verdict := is_linearizable(history["events"], history["init"], budget=20_000))
        is not history["linearizable"]
    }
    assert len(histories) > 200
    assert wrong == {}


def event(process: int, kind: str, f: str, value: Any, **more: Any) -> dict[str, Any]:
    return {"process": process, "type": kind, "f": f, "value": value, **more}


def test_a_read_of_what_was_overwritten_before_it_began_is_caught() -> None:
    history = [
        event(1, "invoke", "write", 1),
        event(1, "ok", "write", 1),
        event(2, "invoke", "read", None),
        event(2, "ok", "read", None),
    ]
    assert is_linearizable(history) is False
    assert is_linearizable([history[0], history[2], history[3], history[1]]) is True


def test_an_unknown_write_may_take_effect_late_or_never_but_only_once() -> None:
    history = [
        event(1, "invoke", "cas", [None, "a"]),
        event(1, "info", "cas", [None, "a"]),
        event(2, "invoke", "read", None),
        event(2, "ok", "read", None),
    ]
    seen = [event(3, "invoke", "read", None), event(3, "ok", "read", "a")]
    gone = [event(4, "invoke", "write", None), event(4, "ok", "write", None)]
    assert is_linearizable(history) is True
    assert is_linearizable(history + seen) is True
    assert is_linearizable(history + seen + gone + seen) is False


def test_a_refusal_that_says_nothing_about_the_register_is_left_out() -> None:
    history = [event(1, "invoke", "cas", ["x", "y"]), event(1, "fail", "cas", ["x", "y"])]
    assert is_linearizable(history, init="x") is False
    history[1]["definite"] = False
    assert is_linearizable(history, init="x") is True


def test_a_budget_that_does_not_suffice_is_said() -> None:
    writes = [event(n, "invoke", "write", n) for n in range(12)]
    ends = [event(n, "ok", "write", n) for n in range(12)]
    read = [event(99, "invoke", "read", None), event(99, "ok", "read", "nobody wrote this")]
    assert is_linearizable(writes + ends + read, budget=100) is None


def random_history(chance: Chance) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = []
    open_: dict[int, tuple[str, Any]] = {}
    begun = 0
    while begun < 5 or open_:
        if begun < 5 and (not open_ or chance.chance(0.6)):
            f = chance.choose(["read", "write", "cas"])
            value = {
                "read": None,
                "write": chance.below(3),
                "cas": [chance.below(3), chance.below(3)],
            }[f]
            open_[begun] = (f, value)
            events.append(event(begun, "invoke", f, value))
            begun += 1
        else:
            process = chance.choose(list(open_))
            f, value = open_.pop(process)
            kind = chance.choose(["ok", "ok", "ok", "fail", "info"])
            value = chance.below(3) if f == "read" else value
            events.append(event(process, kind, f, value))
    return events


def exhaustive(events: list[dict[str, Any]], init: Any) -> bool:
    """Try every order of every choice of unknown operations: too slow for more than a few."""
    spans: dict[int, dict[str, Any]] = {}
    for at, one in enumerate(events):
        if one["type"] == "invoke":
            spans[one["process"]] = {**one, "call": at, "end": float("inf"), "type": "info"}
        else:
            known_end = at if one["type"] != "info" else float("inf")
            spans[one["process"]] |= {"end": known_end, "type": one["type"], "got": one["value"]}
    required = [
        s for s in spans.values() if s["type"] == "ok" or (s["type"] == "fail" and s["f"] == "cas")
    ]
    optional = [s for s in spans.values() if s["type"] == "info" and s["f"] != "read"]
    return any(
        _fits(order, init)
        for count in range(len(optional) + 1)
        for chosen in itertools.combinations(optional, count)
        for order in itertools.permutations([*required, *chosen])
    )


def _fits(order: tuple[dict[str, Any], ...], state: Any) -> bool:
    for i, one in enumerate(order):
        if any(later["end"] < one["call"] for later in order[i + 1 :]):
            return False
        if one["f"] == "read":
            if one["got"] != state:
                return False
        elif one["f"] == "write":
            state = one["value"]
        elif one["type"] == "fail":
            if state == one["value"][0]:
                return False
        else:
            if state != one["value"][0]:
                return False
            state = one["value"][1]
    return True


def test_small_histories_get_the_verdict_of_trying_everything() -> None:
    chance = Chance(2025)
    verdicts = {True: 0, False: 0}
    for _ in range(3_000):
        history = random_history(chance)
        expected = exhaustive(history, 0)
        assert is_linearizable(history, 0) is expected, history
        verdicts[expected] += 1
    assert min(verdicts.values()) > 500
