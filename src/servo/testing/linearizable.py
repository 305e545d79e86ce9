"""Is a history of one register linearizable?

    history   events in the order in which they were seen: `{"process", "type", "f", "value"}`
    invoke    somebody begins a read, a write of v, or a cas of [old, new]
    ok        it happened; a read's value is what was read
    fail      it did not happen; of a cas: the register did not hold `old` (with `"definite": false`:
              nothing is known but that it did not happen)
    info      nobody knows: it may take effect at any later time, or never. So is an invoke without
              an end

A history is linearizable if every operation can be given one instant between its beginning and its
end such that a single register would have answered the same.

The search is Wing and Gong's with Lowe's memory of configurations seen, and three savings that keep
it small where many outcomes are unknown:

* a read that fits, or a cas that failed and would fail here, is taken at once: if anything works,
  this works first (not so a write of the value that is there: it may be what brings it back later);
* an unknown operation is taken only where it changes the register, and never has to be taken;
* unknown operations that do the same thing are told apart by nothing: the earliest is taken first,
  and only their number is remembered.

Held against 217 public histories by tests/sim/test_linearizable.py.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

BUDGET = 2_000_000
"""How many configurations are looked at before giving up."""


class _Operation(NamedTuple):
    call: int
    end: float
    needs: Any
    """What the register must hold; `_ANYTHING`: no matter."""
    excludes: Any
    """What it must not hold (a cas that failed)."""
    leaves: Any
    """What it holds afterwards; `_ANYTHING`: the same as before."""


_ANYTHING = object()


def is_linearizable(
    events: Iterable[Mapping[str, Any]], init: Any = None, budget: int = BUDGET
) -> bool | None:
    """True or False; None if the budget did not suffice to tell."""
    known, unknown = _operations(events)
    count = len(known)
    kinds = list(unknown.values())
    # A configuration: operations before `base` are done, and those after it whose bit is set; `used`
    # says how many unknown operations of each kind are.
    start = (0, 0, _frozen(init), (0,) * len(kinds))
    seen = {start}
    stack = [start]
    while stack:
        base, done, value, used = stack.pop()
        base, done = _take_what_fits(known, base, done, value)
        if base == count:
            return True
        if len(seen) > budget:
            return None
        choices = []
        earliest_end = math.inf
        for index in range(base, count):
            operation = known[index]
            if operation.call > earliest_end:
                break
            if done >> (index - base) & 1:
                continue
            earliest_end = min(earliest_end, operation.end)
            if operation.leaves is not _ANYTHING and operation.needs in (_ANYTHING, value):
                after = done | 1 << (index - base)
                choices.append((base, after, operation.leaves, used))
        # Pushed last, tried first: what is known to have happened leads to the end sooner.
        for kind, operations in enumerate(kinds):
            if used[kind] == len(operations):
                continue
            operation = operations[used[kind]]
            if operation.call > earliest_end or operation.leaves == value:
                continue
            if operation.needs in (_ANYTHING, value):
                one_more = (*used[:kind], used[kind] + 1, *used[kind + 1 :])
                choices.insert(0, (base, done, operation.leaves, one_more))
        for choice in choices:
            if choice not in seen:
                seen.add(choice)
                stack.append(choice)
    return False


def _take_what_fits(known: list[_Operation], base: int, done: int, value: Any) -> tuple[int, int]:
    """Take every operation that can come next and never changes the register."""
    earliest_end = math.inf
    for index in range(base, len(known)):
        operation = known[index]
        if operation.call > earliest_end:
            break
        if done >> (index - base) & 1:
            continue
        if (
            operation.leaves is _ANYTHING
            and operation.needs in (_ANYTHING, value)
            and (operation.excludes is _ANYTHING or operation.excludes != value)
        ):
            done |= 1 << (index - base)
        else:
            earliest_end = min(earliest_end, operation.end)
    while done & 1:
        base, done = base + 1, done >> 1
    return base, done


def _operations(
    events: Iterable[Mapping[str, Any]],
) -> tuple[list[_Operation], dict[Any, list[_Operation]]]:
    """Those that certainly happened, by their beginning; and those that may have, by what they do."""
    known: list[_Operation] = []
    open_: dict[Any, tuple[int, str, Any]] = {}
    unknown: list[tuple[int, str, Any]] = []
    for at, event in enumerate(events):
        process = event["process"]
        if event["type"] == "invoke":
            if process in open_:
                unknown.append(open_[process])
            open_[process] = (at, event["f"], _frozen(event.get("value")))
            continue
        if process not in open_:
            continue
        call, kind, value = open_.pop(process)
        if event["type"] == "info":
            unknown.append((call, kind, value))
        elif event["type"] == "ok":
            if kind == "read":
                read = _frozen(event.get("value"))
                known.append(_Operation(call, at, read, _ANYTHING, _ANYTHING))
            elif kind == "write":
                known.append(_Operation(call, at, _ANYTHING, _ANYTHING, value))
            else:
                known.append(_Operation(call, at, value[0], _ANYTHING, value[1]))
        elif kind == "cas" and event.get("definite", True):
            known.append(_Operation(call, at, _ANYTHING, value[0], _ANYTHING))
    known.sort(key=lambda operation: operation.call)
    kinds: dict[Any, list[_Operation]] = {}
    for call, kind, value in sorted([*unknown, *open_.values()], key=lambda item: item[0]):
        if kind == "write":
            needs, leaves = _ANYTHING, value
        elif kind == "cas":
            needs, leaves = value
        else:
            continue  # a read that told nobody anything
        operation = _Operation(call, math.inf, needs, _ANYTHING, leaves)
        kinds.setdefault((kind, value), []).append(operation)
    return known, kinds


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value
