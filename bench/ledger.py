"""What a durable fact costs: alone, with 64 callers at once, while tables are published, and a publish.

    python bench/ledger.py

Everything is on this machine's disk and durable. One appender (a fact in its envelope, hashed into the
chain, durable), one caller of a whole engine (the same, with fold and controllers) and raw appends
with fdatasync of as many bytes take turns in one run.

64 callers each write one small event at a time. "Folded" means that the engine's state has them; a
publisher that never runs leaves the tables alone, one that does publishes as it always does.
"""

import asyncio
import os
from pathlib import Path
from time import perf_counter

from engines import folder, p50, raw_append, session
from report import figure
from servo.adapters.disk import LocalDisk
from servo.adapters.local_log import LocalLog
from servo.adapters.local_objects import LocalObjects
from servo.adapters.system import RealSystem
from servo.core.segments import GENESIS
from servo.events.audit import AuditRecorded
from servo.events.vocabulary import VOCABULARY
from servo.fold.table import Kind, Row, Table
from servo.fold.tables import TABLES
from servo.ledger.journal import Journal
from servo.ledger.manifest import moment_text
from servo.ledger.publisher import Publisher
from servo.runtime import engine as engines

BENCH = "ledger"
CALLERS = 64
ROUNDS = 8


async def alone(root: Path) -> None:
    """One appender: an event as a segment of its own; and one caller of an engine, with fold and
    controllers. Both beside a raw append of as many bytes."""
    engines.PUBLISH_US = 10**15
    system = RealSystem()
    log = LocalLog(LocalDisk(), str(root / "appender"))
    journal = Journal(log, system.new_id(), system.new_id)
    position, prev_hash = 0, GENESIS
    appends: list[float] = []
    submits: list[float] = []
    raw: list[float] = []
    size = 0
    async with session(root) as opened:
        engine = opened.engine
        ledger = root / "local" / "main" / "ledger"
        for _ in range(ROUNDS):
            before = sum(path.stat().st_size for path in ledger.glob("*.jsonl"))
            for number in range(100):
                fact = AuditRecorded(action="bench", subject=f"fact-{number}")
                started = perf_counter()
                await engine.submit([fact], source="bench")
                submits.append(perf_counter() - started)
            size = (sum(path.stat().st_size for path in ledger.glob("*.jsonl")) - before) // 100
            for number in range(100):
                fact = AuditRecorded(action="bench", subject=f"fact-{number}")
                started = perf_counter()
                position += 1
                header = await journal.append(
                    [VOCABULARY.spell(engine.event(fact, "bench"))],
                    position=position,
                    prev_hash=prev_hash,
                    epoch=1,
                    kind="leader",
                    written_at=moment_text(system.now()),
                )
                prev_hash = header.hash
                appends.append(perf_counter() - started)
            raw += raw_append(root, size, 100)
    print(
        f"one appender {p50(appends) * 1e3:.3f} ms, one caller of an engine"
        f" {p50(submits) * 1e3:.3f} ms, raw append {p50(raw) * 1e3:.3f} ms ({size} bytes)"
    )
    ratio = p50(appends) / p50(raw)
    figure(BENCH, "raw_append_p50", p50(raw) * 1e3, "ms", "", True)
    figure(BENCH, "appender_p50", p50(appends) * 1e3, "ms", "", True)
    figure(BENCH, "appender_over_raw", ratio, "ratio", "<1.5", ratio < 1.5)
    figure(BENCH, "engine_caller_over_raw", p50(submits) / p50(raw), "ratio", "", True)


async def many(root: Path, *, publish: bool, seconds: float) -> float:
    """Events acknowledged and folded per second, with 64 callers of one event at a time."""
    engines.PUBLISH_US = 500_000 if publish else 10**15
    async with session(root) as opened:
        engine = opened.engine
        count = 0
        until = perf_counter() + seconds

        async def caller(name: str) -> None:
            nonlocal count
            while perf_counter() < until:
                await engine.submit([AuditRecorded(action="bench", subject=name)], source="bench")
                count += 1

        started = perf_counter()
        await asyncio.gather(*(caller(f"caller-{i}") for i in range(CALLERS)))
        took = perf_counter() - started
        revision = engine.revision
    if publish:
        assert revision >= seconds, "it has to publish while it is measured"
    return count / took


async def publishing(root: Path) -> None:
    """A publish of 1,000 changed rows over five tables."""
    system = RealSystem()
    objects = LocalObjects(LocalDisk(), str(root), system.new_id)
    publisher = Publisher(objects, system.new_id)
    times = []
    for turn in range(1, 31):
        rows = {table: [_row(table, turn, i) for i in range(200)] for table in TABLES[:5]}
        started = perf_counter()
        await publisher.publish(
            position=turn,
            ledger_hash=GENESIS,
            epoch=1,
            published_at=system.now(),
            rows=rows,
        )
        times.append(perf_counter() - started)
    print(f"publish of 1,000 rows over five tables: {p50(times) * 1e3:.1f} ms")
    figure(BENCH, "publish_1000_rows_p50", p50(times) * 1e3, "ms", "<60", p50(times) < 0.06)


def _row(table: Table, turn: int, number: int) -> Row:
    values: list[str | int | bool | None] = []
    for column in table.columns[:-2]:
        match column.kind:
            case Kind.INTEGER:
                values.append(number)
            case Kind.MOMENT:
                values.append(1_736_899_200_000_000 + number)
            case Kind.BOOLEAN:
                values.append(number % 2 == 0)
            case Kind.JSON:
                values.append("[]")
            case _:
                values.append(f"{column.name}-{turn:04}-{number:06}")
    return (*values, turn, number)


def main() -> None:
    with folder() as name:
        asyncio.run(alone(Path(name)))
    best = {True: 0.0, False: 0.0}
    for _ in range(3):
        for publish in (False, True):
            with folder() as name:
                rate = asyncio.run(many(Path(name), publish=publish, seconds=4.0))
            best[publish] = max(best[publish], rate)
    print(f"{CALLERS} callers: {best[False]:,.0f} events/s, while publishing {best[True]:,.0f}")
    figure(BENCH, "events_per_s_64_callers", best[False], "1/s", ">=20000", best[False] >= 20_000)
    figure(BENCH, "events_per_s_publishing", best[True], "1/s", ">=8000", best[True] >= 8_000)
    with folder() as name:
        asyncio.run(publishing(Path(name)))


if __name__ == "__main__":
    os.environ.pop("PYTHONASYNCIODEBUG", None)
    main()
