"""Does this store keep two writers apart? Asked once, before anything rests on it.

Manifests, and on an object store the ledger itself, stand on `put_new` having one winner. Some stores,
and some proxies in front of them, accept the condition and ignore it: everything works until two
writers meet, and then history is overwritten. So two writers meet here first, on an object of their
own that is removed afterwards.

It is a probe and no proof: it finds a store that ignores the condition, not one that fails to keep it
once in a million.
"""

import contextlib
from collections.abc import Callable

from servo.errors import Invalid, Unavailable
from servo.ports.objects import Objects

_FIRST = b"written by the first writer\n"
_SECOND = b"written by the second writer\n"


async def probe(objects_a: Objects, objects_b: Objects, new_id: Callable[[], str]) -> None:
    """Refuse, as `Invalid`, a store where a second writer is not told that it came second."""
    path = f"probe/{new_id()}"
    try:
        if not await objects_a.put_new(path, _FIRST):
            raise _refusal("said that a name which nobody ever used is taken")
        second_won = await objects_b.put_new(path, _SECOND)
        seen = {await objects_a.get(path), await objects_b.get(path)}
        if _SECOND in seen:
            raise _refusal("let a second writer overwrite what the first had created")
        if second_won:
            raise _refusal("told two writers that each was the first")
        if seen != {_FIRST}:
            raise _refusal("did not give back what had been written")
    finally:
        # Left behind it is in nobody's way; a failure here must not hide the answer.
        with contextlib.suppress(Unavailable):
            await objects_a.delete(path)


def _refusal(what: str) -> Invalid:
    return Invalid(
        f"this store cannot hold a workspace: asked to create an object only if there is none, it"
        f" {what}; use a store with conditional writes (a local disk, S3, GCS, Azure), with nothing"
        " between that drops the condition"
    )
