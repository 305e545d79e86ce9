"""The trail: how an overlay is taken back.

The leader folds what it is about to write before it is durable, and must forget it if another writer
was first. So every change of the state goes through `put` or `drop`, which remember what was there;
`keep` forgets the memories, `undo` goes back through them. Cost follows what changed.
"""

from collections.abc import Callable
from typing import Any


class _Nothing:
    pass


_NOTHING = _Nothing()


class Trail:
    def __init__(self) -> None:
        self._steps: list[tuple[dict[Any, Any], Any, Any]] = []

    def put(self, mapping: dict[Any, Any], key: Any, value: Any) -> None:
        self._steps.append((mapping, key, mapping.get(key, _NOTHING)))
        mapping[key] = value

    def drop(self, mapping: dict[Any, Any], key: Any) -> None:
        if key in mapping:
            self._steps.append((mapping, key, mapping.pop(key)))

    def keep(self) -> None:
        self._steps.clear()

    def undo(self, restored: Callable[[dict[Any, Any], Any], None]) -> None:
        """Go back; `restored` hears of everything that was put back, when all is as it was."""
        steps, self._steps = self._steps, []
        for mapping, key, value in reversed(steps):
            if value is _NOTHING:
                mapping.pop(key, None)
            else:
                mapping[key] = value
        for mapping, key, _ in steps:
            restored(mapping, key)

    def __bool__(self) -> bool:
        return bool(self._steps)
