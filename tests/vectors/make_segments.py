"""Writes segments.json with the standard library alone: nothing of Servo is asked.

    python tests/vectors/make_segments.py

A test compares the file with what this gives; a difference in either means that the format changed.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

ABOUT = (
    "Segments of the ledger, format 1. Each case has the header's fields that a writer chooses, the"
    " event lines (without their newline), and what must come out: 'bytes' is the whole segment (UTF-8;"
    " every line ends in \\n), 'hash' its hash, 'root' the root over its lines. A line's digest is"
    " SHA-256 of its bytes; root is SHA-256 of the concatenated raw digests; hash is SHA-256 of the"
    " header without 'hash' as canonical JSON (keys sorted, no spaces, raw UTF-8). A redacted line"
    " stands for the digest it names. The cases are one chain: each prev_hash is the hash before it."
)
GENESIS = "sha256:" + "0" * 64
ORDER = (
    *("format", "position", "prev_hash", "writer_id", "nonce", "epoch", "kind"),
    *("written_at", "count", "root", "hash"),
)
CASES: list[dict[str, Any]] = [
    {
        "name": "one line",
        "lines": ['{"event_type":"LeaderClaimed"}'],
        "fields": {
            "writer_id": "01ARYZ6S41TSV4RRFFQ69G5FAV",
            "nonce": "a",
            "epoch": 1,
            "kind": "leader",
        },
    },
    {
        "name": "three lines, one of them not ASCII",
        "lines": ['{"a":1}', '{"name":"Zürich \U0001f600"}', '{"text":"two\\nlines"}'],
        "fields": {"writer_id": "w-2", "nonce": "b", "epoch": 1, "kind": "reporter"},
    },
    {
        "name": "a redacted line between two others",
        "lines": [
            '{"a":1}',
            '{"redacted":"sha256:' + hashlib.sha256(b'{"secret":"x"}').hexdigest() + '"}',
            '{"a":3}',
        ],
        "fields": {"writer_id": "w-2", "nonce": "c", "epoch": 1, "kind": "reporter"},
    },
    {
        "name": "the lines as they were before one was redacted: the same root",
        "lines": ['{"a":1}', '{"secret":"x"}', '{"a":3}'],
        "fields": {"writer_id": "w-2", "nonce": "c", "epoch": 1, "kind": "reporter"},
    },
    {
        "name": "a writer with quotes, an escape and an accent in its name; large numbers",
        "lines": ["{}"],
        "fields": {"writer_id": 'é"\\\t/', "nonce": "", "epoch": 2**53 + 1, "kind": "leader"},
    },
]


def sha(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()


def dumps(value: Any, **how: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), **how)


def digest(line: str) -> bytes:
    value = json.loads(line)
    if isinstance(value, dict) and list(value) == ["redacted"]:
        return bytes.fromhex(value["redacted"].removeprefix("sha256:"))
    return sha(line.encode())


def vectors() -> dict[str, Any]:
    cases, previous = [], GENESIS
    for position, case in enumerate(CASES, 1):
        header = {
            "format": 1,
            "position": position,
            "prev_hash": previous,
            "written_at": f"2025-01-15T00:00:0{position}.000000Z",
            "count": len(case["lines"]),
            "root": "sha256:" + sha(b"".join(map(digest, case["lines"]))).hex(),
            **case["fields"],
        }
        header["hash"] = "sha256:" + sha(dumps(header, sort_keys=True).encode()).hex()
        lines = [dumps({key: header[key] for key in ORDER}), *case["lines"]]
        chosen = ("position", "prev_hash", "writer_id", "nonce", "epoch", "kind", "written_at")
        cases.append(
            {
                "name": case["name"],
                "fields": {key: header[key] for key in chosen},
                "lines": case["lines"],
                "root": header["root"],
                "hash": header["hash"],
                "bytes": "".join(line + "\n" for line in lines),
            }
        )
        previous = header["hash"]
    return {"about": ABOUT, "cases": cases}


def text() -> str:
    return json.dumps(vectors(), ensure_ascii=False, indent=2) + "\n"


if __name__ == "__main__":
    Path(__file__).with_name("segments.json").write_text(text())
