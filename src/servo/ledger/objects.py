"""Objects by content, and how a lost answer about a new object is settled.

    value   bytes too large for a fact or a manifest: a plan, a list of files
    ref     `sha256:…`, the name of a value: the hash of its bytes. It lies at `objects/{hex}`

A value is written before whatever names it, and never changes: writing it twice is writing it once.
A crash in between leaves a value that nobody names, which is garbage. What is read is checked
against its ref, so that a ref in a verified fact or manifest vouches for the value.
"""

import re

from servo.core.segments import digest
from servo.errors import Corrupt, Invalid, Uncertain
from servo.ports.objects import Objects

ATTEMPTS = 3
_REF = re.compile(r"sha256:[0-9a-f]{64}\Z")


def value_path(ref: str) -> str:
    if not _REF.match(ref):
        raise Invalid(f"{ref[:80]!r} is not the name of a stored value, such as 'sha256:9f86d0…'")
    return f"objects/{ref[7:]}"


async def put_value(objects: Objects, data: bytes) -> str:
    """Store a value and return its ref. One that is there already is left as it is."""
    ref = digest(data)
    path = value_path(ref)
    if await create(objects, path, data) is not None:
        raise Corrupt(
            f"the stored value {path} was changed: it does not match its name; restore it"
            " from a copy, or delete it and try again"
        )
    return ref


async def get_value(objects: Objects, ref: str) -> bytes:
    path = value_path(ref)
    data = await objects.get(path)
    if data is None:
        raise Corrupt(f"the stored value {path} is gone; restore it from a copy")
    if digest(data) != ref:
        raise Corrupt(
            f"the stored value {path} was changed: its bytes hash to {digest(data)};"
            " restore it from a copy"
        )
    return data


async def create(objects: Objects, path: str, data: bytes) -> bytes | None:
    """Create an object. None: it is there, with these bytes. Otherwise: the bytes that were first.

    A lost answer is settled by asking again, which is safe: both calls carry the same bytes, and one
    of them wins. Reading back alone would not do: after a failed sync a disk shows what it may not
    have, and "taken" is said only of what is durable.
    """
    for _ in range(ATTEMPTS):
        try:
            if await objects.put_new(path, data):
                return None
        except Uncertain:
            continue
        found = await objects.get(path)
        if found is not None:
            return None if found == data else found
    raise Uncertain(
        f"nobody knows whether {path} was written: the store lost {ATTEMPTS} answers in a row;"
        " try again later"
    )
