"""A world: engines, workers, callers and faults, from one seed, and the auditor that watches them.

    life      what a process does from its start until it dies: it opens a session, which leads or
              follows, and asks for the runs that nobody has been promised yet
    rival     somebody whose requests meet a leader's decisions on their way
    chaos     kills, pauses, power cuts and clocks that jump, until the faults stop
    request   a run that somebody wants, under a run key: whoever dies before the answer, the next
              process asks again, and there is one run all the same

The code under test is the real one: engines, sessions, fold, controllers, publisher; on a folder also
the real local adapters over a simulated disk. Two kinds of places and two kinds of workers:

    folder    processes of one machine share a disk and the operating system's lock
    cloud     each process has its own way to a store and a log, with lost answers; there is a lease
    inline    attempts live in the engine's process and die with it; some runs name code that only
              the process has that asked for them
    pool      attempts are sent to workers who report late, twice, differently or never
    resident  an engine leads or follows until it goes, fails or dies
    steps     nothing runs at rest: now and then an engine comes, leads, does what there is to do,
              publishes and goes

`simulate(seed)` raises `Violation`, with the seed, if something that must never happen did; what is
checked is listed in `servo.testing.auditor`. What it comes back with says what happened on the way
(`Outcomes.counts`), so that a test can tell whether many worlds reach the paths they are made for.

Worlds are small, so a few numbers are smaller in them than in life: files of the log, how many files
are merged, how long code that nobody has is waited for.
"""

import asyncio
import contextvars
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

import msgspec

from servo.control import anti_entropy as rules
from servo.core import segments
from servo.core.failures import FailureCode, TaskFailure
from servo.core.keys import TaskKey
from servo.core.plain import to_plain
from servo.core.plan import Plan, PlannedAsset, PlannedTask, PlanRequest, fingerprint
from servo.core.policies import RetryPolicy, Timeouts
from servo.core.segments import Header, Place
from servo.errors import Conflict, Fenced, ServoError, Unavailable, Uncertain
from servo.events.audit import AuditRecorded
from servo.events.catalog import DeploymentCreated
from servo.events.envelope import ENGINE, Event, Fact
from servo.events.execution import Outcome, TaskFinished, TaskHeartbeat, TaskStarted
from servo.events.vocabulary import VOCABULARY
from servo.fold.table import Table
from servo.ledger import parquet, publisher
from servo.ledger.manifest import Manifest
from servo.ports.executor import Report, Work
from servo.ports.log import READ_BYTES, Log
from servo.ports.objects import Objects
from servo.ports.store import Store
from servo.runtime import requests
from servo.runtime.engine import Engine
from servo.runtime.session import Session
from servo.testing.auditor import Auditor, Violation
from servo.testing.chance import Chance
from servo.testing.loop import VirtualLoop
from servo.testing.processes import Clock, Process
from servo.testing.storage import (
    CALM,
    ROUGH,
    STORM,
    FaultyLog,
    FaultyObjects,
    History,
    Machine,
    Trouble,
    Weather,
)
from servo.testing.trace import Trace
from servo.wiring import stores
from servo.worker.inline import InlineExecutor, Made

CODE = "deployment:sim"
DAY = 24 * 3600.0
STILL = 900.0
"""So long after the faults stopped something happens to every run that has not ended."""
CODE_WAIT = 60_000_000
"""Instead of half a day."""
_FOLDER = "/servo"


class Scenario(msgspec.Struct, frozen=True, kw_only=True):
    """What kind of world it is."""

    place: str
    workers: str
    engines: int
    runs: int
    trouble: Trouble
    seconds: float
    """How long faults go on."""
    life: str = "resident"
    merge_files: int = 4
    log_bytes: int = 16_384

    @classmethod
    def of(cls, chance: Chance) -> "Scenario":
        scenario = cls(
            place=chance.choose(["folder", "cloud"]),
            workers=chance.choose(["inline", "pool"]),
            engines=chance.choose([1, 2, 2, 3, 3]),
            runs=1 + chance.below(4),
            trouble=chance.choose([CALM, ROUGH, ROUGH, STORM]),
            seconds=float(10 + chance.below(40)),
            merge_files=chance.choose([3, 8, 50]),
            log_bytes=chance.choose([4_096, 65_536]),
        )
        # Far away, requests of different processes meet more often.
        delay = chance.choose([2_000, 20_000, 100_000, 300_000])
        trouble = msgspec.structs.replace(scenario.trouble, delay_us=delay)
        scenario = msgspec.structs.replace(scenario, trouble=trouble)
        if scenario.workers == "pool" and chance.chance(0.25):
            # An attempt that lives in an engine's process would die with every step.
            return msgspec.structs.replace(scenario, life="steps")
        return scenario


class Outcomes(NamedTuple):
    """What a world came to."""

    scenario: Scenario
    digest: str
    """Of the trace: the same for the same seed."""
    trace: Trace
    seconds: float
    segments: int
    revisions: int
    acknowledged: int
    counts: Mapping[str, int]
    """What happened how often: see `COUNTED`."""


COUNTED = {
    "killed": "a process died",
    "power cut": "a machine lost power",
    "zombie": "a leader that slept while another took over woke up",
    "takeover": "a workspace was claimed after somebody else had",
    "fenced": "a leader found that somebody newer leads",
    "race": "a leader's segment lost its position to another's",
    "intents thrown away": "and there were decisions in it, which were made again",
    "answer lost": "an append was answered with 'nobody knows'",
    "answer settled": "and the writer found out that it had landed",
    "reload": "a run that had left memory was loaded again because of a late fact",
    "merge": "a table has merged files",
    "contended": "two engines tried to create the same manifest",
    "live check": "an engine's state was compared with the ledger",
    "step": "an engine came, did what there was to do, and went",
    "own code": "a run was asked for whose code only one process has",
}


def simulate(seed: int, scenario: Scenario | None = None) -> Outcomes:
    """Run the world of a seed to its end."""
    chance = Chance(seed)
    scenario = scenario or Scenario.of(chance.fork("scenario"))
    loop = VirtualLoop(chance.fork("order"))
    with _small(scenario):
        try:
            world = _World(loop, chance, scenario)
            return loop.run(world.play())
        except Exception as error:
            raise Violation(f"seed {seed}: {str(error) or repr(error)}\n{scenario}") from error
        finally:
            loop.close()


@contextmanager
def _small(scenario: Scenario) -> Iterator[None]:
    """Numbers for a small world; and each file that is read often is decoded once."""
    decode, known = parquet.arrow, dict[tuple[str, bytes], Any]()

    def remembered(table: Table, data: bytes) -> Any:
        key = (table.name, data)
        if key not in known:
            known[key] = decode(table, data)
        return known[key]

    with ExitStack() as stack:
        stack.enter_context(patch.object(publisher, "MERGE_FILES", scenario.merge_files))
        stack.enter_context(patch.object(rules, "CODE_WAIT_US", CODE_WAIT))
        stack.enter_context(patch.object(parquet, "arrow", remembered))
        yield


class _Request:
    def __init__(self, number: int, plan: Plan, cancel: bool, own_code: bool) -> None:
        self.run_key = f"request-{number}"
        self.plan = plan
        self.cancel = cancel
        self.own_code = own_code
        """Only the process that asks for the run can load its code."""
        self.run_id: str | None = None
        self.ended = False


class _World:
    def __init__(self, loop: VirtualLoop, chance: Chance, scenario: Scenario) -> None:
        self.loop = loop
        self.chance = chance
        self.scenario = scenario
        self.trace = Trace(loop.microseconds)
        # A disk that fails to sync and a process that dies in the middle of a call, both at once and
        # then a power cut, are more than the log of a folder survives (servo.adapters.local_log).
        self._dies_in_calls = chance.fork("calls").chance(0.5)
        trouble = scenario.trouble
        if self._dies_in_calls:
            trouble = msgspec.structs.replace(trouble, sync_error=0.0)
        self.weather = Weather(trouble)
        self.history = History("manifests/0")
        self.calm = False
        self.violations: list[Violation] = []
        self.counts: Counter[str] = Counter()
        self.processes: list[Process] = []
        self.engines: dict[str, _Engine] = {}
        """The engine that each process has now."""
        self._deployed = False
        self._machine = Machine(loop, "m", chance, self.weather)
        self._memory = stores.memory_store()
        self._audits = 0
        true = self._true()
        self.auditor = Auditor(true.log, true.objects)
        self.pool = _Pool(self)
        self.rival = _Rival(self)
        self.drowsy = chance.fork("drowsy")
        draw = chance.fork("plans")
        inline = scenario.workers == "inline"
        self.requests = [
            _Request(i, _plan(draw, i), draw.chance(0.35), inline and draw.chance(0.2))
            for i in range(scenario.runs)
        ]

    def _true(self) -> Store:
        """The workspace as it is."""
        if self.scenario.place == "cloud":
            return self._memory
        self._audits += 1
        return self._folder(self._process(f"auditor{self._audits}", skewed=False))

    def _folder(self, process: Process) -> Store:
        store = stores.store_on(lambda: self._machine.disk(process), _FOLDER, process.new_id)
        log: Any = store.log
        log._file_bytes = self.scenario.log_bytes  # not a setting for anybody else
        return store

    def _process(self, name: str, *, skewed: bool = True) -> Process:
        draw = self.chance.fork(f"clock {name}")
        skew = (draw.below(10_000_000) - 5_000_000) if skewed else 0
        drift = (draw.below(400) - 200) if skewed else 0
        clock = Clock(self.loop, skew_us=skew, drift_ppm=drift)
        return Process(self.loop, name, self.chance, clock=clock, trace=self.trace)

    def store(self, process: Process) -> Store:
        """The workspace, as one process reaches it."""
        if self.scenario.place == "folder":
            return self._folder(process)
        draw = self.chance.fork(f"wire {process.name}")
        objects = FaultyObjects(self._memory.objects, process, draw, self.weather)
        log = FaultyLog(self._memory.log, process, draw, self.weather)
        return Store("local", "main", log, self.history.recorded(objects, process))

    def count(self, what: str) -> None:
        assert what in COUNTED
        self.counts[what] += 1

    def blame(self, error: Violation) -> None:
        self.violations.append(error)

    # --- Playing ----------------------------------------------------------------------------------

    async def play(self) -> Outcomes:
        for number in range(self.scenario.engines):
            self._start(self._process(f"engine{number + 1}"))
        if self.scenario.workers == "pool":
            self.pool.start()
        self.rival.start()
        chaos = asyncio.create_task(self._chaos())
        await chaos
        self.weather.off()
        self.calm = True
        for process in self.processes:
            self._wake(process)
        self._revive()
        self.trace.note("world", "calm")
        began = moved = self.loop.time()
        stands: object = None
        while not all(request.ended for request in self.requests):
            await self._while_watching(1.0)
            self._revive()
            self._look_for_ends()
            known = {r.run_id: r.run.last for r in self.auditor.shadow.runs.values()}
            if known != stands:
                stands, moved = known, self.loop.time()
            if self.loop.time() - began > DAY:
                raise Violation(f"a day after the faults stopped, {self._unfinished()}")
            if self.loop.time() - moved > STILL:
                raise Violation(
                    f"nothing has moved for {STILL:.0f} seconds, and {self._unfinished()}"
                )
        await self._all_published()
        newest = await self.auditor.check_tables()
        self._check_requests()
        self._check_live()
        if self.loop.accidents:
            raise Violation(f"where nobody looked: {self.loop.accidents[0]}")
        if wrong := self.history.wrong():
            raise Violation(f"manifests are not linearizable: {wrong[0]}")
        self.trace.note("world", "end", hash=self.auditor.shadow.hash, revision=newest.revision)
        return Outcomes(
            scenario=self.scenario,
            digest=self.trace.digest(),
            trace=self.trace,
            seconds=self.loop.time(),
            segments=self.auditor.shadow.position,
            revisions=newest.revision,
            acknowledged=self.auditor.acknowledged,
            counts=self._counted(newest),
        )

    def _counted(self, newest: Manifest) -> dict[str, int]:
        claims = self.auditor.claims
        self.counts["takeover"] = len(claims) - 1
        self.counts["merge"] = sum(files.base is not None for files in newest.tables.values())
        self.counts["contended"] = sum(
            len({str(e["process"]).split("#")[0] for e in events if e["f"] == "cas"}) > 1
            for events in self.history.events.values()
        )
        return {what: self.counts[what] for what in COUNTED}

    async def _while_watching(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
        self.auditor.look()
        if self.violations:
            raise self.violations[0]
        self._check_live()
        for process in self.processes:
            for error in process.crashes:
                raise Violation(f"process {process.name} ended with {error!r}") from error

    def _check_live(self) -> None:
        for process in self.processes:
            engine = self.engines.get(process.name)
            if engine is not None and process.alive:
                self.counts["live check"] += self.auditor.check_live(engine.state, process.name)

    async def _chaos(self) -> None:
        """Faults at random, until their time is over."""
        draw = self.chance.fork("chaos")
        while self.loop.time() < self.scenario.seconds:
            await self._while_watching(draw.delay(10_000, 8_000_000))
            if not self.scenario.trouble.refused and draw.chance(0.8):
                continue
            running = [p for p in self.processes if p.state == "running"]
            leader = next((p for p in running if self._leads(p)), None)
            if leader is not None and self.scenario.place == "cloud" and draw.chance(0.4):
                # Longer than the term of a lease, and mostly in peace: another leads when it wakes.
                seconds = draw.delay(11_000_000, 16_000_000)
                self._revive()
                self._sleep(leader, seconds)
                if draw.chance(0.7):
                    await self._while_watching(seconds)
            elif leader is not None and self._dies_in_calls and draw.chance(0.3):
                leader.kill_at_write(1 + draw.below(3), f"{_FOLDER}/ledger")
            elif running:
                self._hurt(draw, draw.choose(running))
            if draw.chance(0.5):
                self._revive()

    def _hurt(self, draw: Chance, process: Process) -> None:
        match draw.below(7):
            case 0:
                process.kill()
            case 1:
                process.kill_at_turn(1 + draw.below(60))
            case 2 if self.scenario.place == "folder" and self._dies_in_calls:
                process.kill_at_call(1 + draw.below(60))
            case 3 if self.scenario.place == "folder" and draw.chance(0.4):
                self.trace.note("world", "power cut")
                self.count("power cut")
                self._machine.power_cut()
                true = self._true()
                self.auditor.power_cut(true.log, true.objects)
            case 4:
                process.clock.jump(draw.below(200_000_000) - 100_000_000)
            case 5 | 6:
                self._sleep(process, draw.delay(100_000, 40_000_000))
            case _:
                pass

    def _leads(self, process: Process) -> bool:
        engine = self.engines.get(process.name)
        return engine is not None and engine.leading

    def _sleep(self, process: Process, seconds: float) -> None:
        process.pause()
        self.loop.call_later(seconds, self._wake, process, context=contextvars.Context())

    def _wake(self, process: Process) -> None:
        if process.state == "paused":
            engine = self.engines.get(process.name)
            if engine is not None and engine.leading and engine.epoch < self.auditor.shadow.epoch:
                self.count("zombie")
            process.resume()

    def _revive(self) -> None:
        for index, process in enumerate(self.processes):
            if process.state == "dead":
                self.count("killed")
                self.processes[index] = again = process.again()
                self.trace.note(again.name, "starts")
                self._begin(again)

    def _start(self, process: Process) -> None:
        self.processes.append(process)
        self._begin(process)

    def _begin(self, process: Process) -> None:
        if "worker" in process.name:
            process.spawn(self.pool.life(process))
        elif "rival" in process.name:
            process.spawn(self.rival.life(process))
        elif self.scenario.life == "steps":
            process.spawn(self._steps(process))
        else:
            process.spawn(self._life(process))

    def _look_for_ends(self) -> None:
        for request in self.requests:
            if request.run_id is not None and not request.ended:
                run = self.auditor.shadow.runs.get(request.run_id)
                request.ended = run is not None and run.ended

    def _unfinished(self) -> str:
        waiting = [r for r in self.requests if not r.ended]
        told = []
        for request in waiting:
            run = self.auditor.shadow.runs.get(request.run_id or "")
            states = {k: (t.state, t.attempt) for k, t in run.tasks.items()} if run else "no run"
            told.append(f"{request.run_key} ({request.run_id}): {states}")
        return "these have not ended: " + "; ".join(told)

    def _check_requests(self) -> None:
        owners = {
            run.run.trigger.run_key: run_id
            for run_id, run in self.auditor.shadow.runs.items()
            if run.exists and run.run.trigger is not None
        }
        for request in self.requests:
            if owners.get(request.run_key) != request.run_id:
                raise Violation(
                    f"{request.run_key} was promised run {request.run_id}, and the ledger has"
                    f" {owners.get(request.run_key)}"
                )

    async def _all_published(self) -> None:
        """A leader makes everything visible soon after it happened."""
        began = self.loop.time()
        while True:
            published = await self.auditor.published()
            if published is not None and not self.auditor.stale(published):
                return
            await self._while_watching(0.5)
            self._revive()
            if self.loop.time() - began > 600:
                raise Violation(
                    f"ten minutes after the last run ended, revision {published and published.revision}"
                    f" covers {published and published.position} of {self.auditor.shadow.position}"
                )

    # --- Lives ------------------------------------------------------------------------------------

    def _engine(self, process: Process, draw: Chance) -> "_Engine":
        executor: Any
        if self.scenario.workers == "pool":
            executor = _PoolExecutor(self.pool, draw)
        else:
            executor = InlineExecutor(self._code(draw), process, 3)
        engine = _Engine(self, self.store(process), process, _Watched(self, executor))
        self.engines[process.name] = engine
        return engine

    async def _life(self, process: Process) -> None:
        draw = self.chance.fork(f"life {process.name}")
        while True:
            await asyncio.sleep(draw.delay(0, 500_000))
            engine = self._engine(process, draw)
            with suppress(Fenced, Unavailable, Conflict):
                async with Session(engine) as session:
                    self.trace.note(process.name, "leads" if engine.leading else "follows")
                    caller = asyncio.create_task(self._keep_asking(engine, draw))
                    leaves = 2_000_000_000 if draw.chance(0.7) else 20_000_000
                    live = asyncio.create_task(session.lived())
                    with suppress(TimeoutError):
                        async with asyncio.timeout(draw.delay(1_000_000, leaves)):
                            await live
                    live.cancel()
                    caller.cancel()
            self.trace.note(process.name, "let go", failure=type(engine.failure).__name__)

    async def _steps(self, process: Process) -> None:
        draw = self.chance.fork(f"life {process.name}")
        while True:
            await asyncio.sleep(draw.delay(100_000, 3_000_000))
            engine = self._engine(process, draw)
            with suppress(Fenced, Unavailable, Conflict):
                await engine.open()
                await self._ask(engine, draw)
                if await engine.once():
                    self.count("step")
            self.trace.note(process.name, "stepped", failure=type(engine.failure).__name__)

    async def _keep_asking(self, engine: Engine, draw: Chance) -> None:
        while True:
            await self._ask(engine, draw)
            busy = any(request.run_id is None for request in self.requests)
            await asyncio.sleep(draw.delay(10_000, 500_000 if busy else 3_000_000))

    async def _ask(self, engine: Engine, draw: Chance) -> None:
        """Ask for what nobody was promised yet."""
        with suppress(ServoError):
            if not self._deployed:
                assets = {f"sim/a{i}": f"asset-{i}" for i in range(8)}
                fact = DeploymentCreated(
                    deployment_id="sim",
                    manifest_object="sha256:" + "0" * 64,
                    code_version="sim",
                    asset_ids=assets,
                )
                await self._submit(engine, fact)
                self._deployed = True
            waiting = [r for r in self.requests if r.run_id is None]
            if waiting:
                # Several ask for the same at once, more often than not.
                wanted = waiting[0] if draw.chance(0.7) else draw.choose(waiting)
                await self._trigger(engine, draw, wanted)
            elif draw.chance(0.1):
                await self._trigger(engine, draw, draw.choose(self.requests))
            elif draw.chance(0.5):
                await self._submit(engine, AuditRecorded(action="looked", subject=engine.new_id()))
            for request in self.requests:
                if request.cancel and request.run_id is not None and draw.chance(0.3):
                    request.cancel = False
                    await requests.cancel(engine, request.run_id)

    async def _trigger(self, engine: Engine, draw: Chance, request: _Request) -> None:
        code = f"process:{engine.writer_id}" if request.own_code else CODE
        found = await requests.trigger(engine, request.plan, code_ref=code, run_key=request.run_key)
        if request.run_id not in (None, found.run_id):
            promises = f"{request.run_id} and {found.run_id}"
            self.blame(Violation(f"{request.run_key} was promised runs {promises}"))
        request.run_id = found.run_id
        if request.own_code:
            self.count("own code")
        self.trace.note("caller", "promised", key=request.run_key, run=found.run_id)
        if request.cancel and draw.chance(0.7):
            # On second thoughts: while its first task is about to be asked for.
            request.cancel = False
            await asyncio.sleep(draw.delay(0, 400_000))
            await requests.cancel(engine, found.run_id)

    async def _submit(self, engine: Engine, fact: Fact) -> None:
        place = await engine.submit([fact], source="client")
        self.acknowledge(place, fact)

    def acknowledge(self, place: Place, fact: Fact) -> None:
        try:
            self.auditor.acknowledge(place, fact)
        except Violation as error:
            self.blame(error)

    def began(self, work: Work, *, once: bool) -> None:
        try:
            self.auditor.begin(work, once=once)
        except Violation as error:
            self.blame(error)

    def _code(self, draw: Chance) -> Callable[[Work], Callable[[], Awaitable[object]]]:
        """The code of inline attempts: quick and slow, right and wrong, some without end."""

        def resolve(work: Work) -> Callable[[], Awaitable[object]]:
            async def call() -> object:
                self.began(work, once=True)
                kind = draw.below(20)
                await asyncio.sleep(draw.delay(0, 3_000_000 if kind < 18 else 12_000_000))
                if self.calm or kind < 14:
                    return Made(row_count=kind) if kind % 2 else None
                if kind < 16:
                    raise ConnectionError
                if kind < 17:
                    raise ValueError
                if kind < 18:
                    await asyncio.sleep(3600)
                return None

            return call

        return resolve


class _Engine(Engine):
    """The engine itself; what it meets on its way is counted, and what it does after it was fenced
    is a violation."""

    def __init__(
        self, world: _World, store: Store, process: Process, watched: "_Watched | None" = None
    ) -> None:
        self._log = _WatchedLog(self, store.log)
        super().__init__(
            store._replace(log=self._log, objects=_WatchedObjects(self, store.objects)),
            process,
            watched,
            loads=self.loads,
        )
        self._world = world
        self._process = process
        if watched is not None:
            watched.engine = self

    @property
    def epoch(self) -> int:
        return self._epoch

    def loads(self, code_ref: str) -> bool:
        return code_ref in (CODE, f"process:{self.writer_id}")

    async def doze(self) -> None:
        """Now and then fall asleep just before publishing, until another one leads and publishes."""
        world = self._world
        if world.scenario.place == "cloud" and not world.calm and world.drowsy.chance(0.08):
            world._sleep(self._process, world.drowsy.delay(11_000_000, 20_000_000))
            await asyncio.sleep(0)

    def check_fence(self, what: str) -> None:
        if isinstance(self.failure, Fenced):
            self._world.blame(Violation(f"{self.writer_id} was fenced, and then {what}"))

    def _fail(self, error: BaseException) -> None:
        if isinstance(error, Fenced) and not isinstance(self.failure, Fenced):
            self._world.count("fenced")
        super()._fail(error)

    async def _append(
        self, lines: Sequence[bytes], kind: Literal["leader", "reporter"], epoch: int
    ) -> Header:
        try:
            header = await super()._append(lines, kind, epoch)
        except Conflict:
            if kind == "leader":
                self._world.count("race")
                if any(VOCABULARY.decode(line).source == ENGINE for line in lines):
                    self._world.count("intents thrown away")
            raise
        if header.nonce in self._log.unsure:
            self._world.count("answer settled")
        return header

    async def _load(self, events: Iterable[Event]) -> None:
        events = list(events)
        missing = self.state.needs(events).runs
        await super()._load(events)
        for run_id in missing:
            if run_id in self.state.runs and self.state.runs[run_id].exists:
                self._world.count("reload")


class _WatchedLog:
    """The log, and a look at who appends: nobody who was fenced."""

    def __init__(self, engine: _Engine, log: Log) -> None:
        self._engine = engine
        self._log = log
        self.unsure: set[str] = set()
        """Nonces of appends whose answers were lost."""

    async def append(self, position: int, data: bytes) -> None:
        self._engine.check_fence(f"appended segment {position}")
        await self._engine._world.rival.forestall(data)
        try:
            await self._log.append(position, data)
        except Uncertain:
            self.unsure.add(segments.parse_header(data[: data.index(b"\n")]).nonce)
            self._engine._world.count("answer lost")
            raise

    async def read(self, start: int, limit: int = READ_BYTES) -> list[bytes]:
        return await self._log.read(start, limit)

    async def head(self) -> int:
        return await self._log.head()


class _Rival:
    """Somebody who stops runs, in the worst moment: a leader's segment that asks for the first work of
    a run is on its way, and the request to stop it arrives just before."""

    def __init__(self, world: _World) -> None:
        self._world = world
        self._draw = world.chance.fork("rival")
        self._inbox: list[tuple[str, asyncio.Event]] = []
        self._arrived = asyncio.Event()

    def start(self) -> None:
        self._world._start(self._world._process("rival"))

    async def forestall(self, data: bytes) -> None:
        if b"DispatchRequested" not in data or self._world.calm:
            return
        for request in self._world.requests:
            run_id = request.run_id
            if request.cancel and run_id is not None and run_id.encode() in data:
                request.cancel = False
                if self._draw.chance(0.8):
                    done = asyncio.Event()
                    self._inbox.append((run_id, done))
                    self._arrived.set()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(done.wait(), 2.0)

    async def life(self, process: Process) -> None:
        engine = _Engine(self._world, self._world.store(process)._replace(lock=None), process)
        self._world.engines[process.name] = engine
        while True:
            self._arrived.clear()
            while self._inbox:
                run_id, done = self._inbox.pop()
                with suppress(Unavailable, Conflict):
                    await engine.open()
                    await requests.cancel(engine, run_id)
                done.set()
            await self._arrived.wait()


class _WatchedObjects:
    """Objects, and a look at who writes manifests: nobody who was fenced."""

    def __init__(self, engine: _Engine, objects: Objects) -> None:
        self._objects = objects
        self._engine = engine

    def __getattr__(self, name: str) -> Any:
        return getattr(self._objects, name)

    async def put_new(self, path: str, data: bytes) -> bool:
        if path.startswith("manifests/"):
            self._engine.check_fence(f"published {path}")
            await self._engine.doze()
        return await self._objects.put_new(path, data)


class _Watched:
    """An executor, and a look at what is handed to it: nothing by who was fenced."""

    def __init__(self, world: _World, executor: Any) -> None:
        self._world = world
        self._executor = executor
        self.engine: _Engine | None = None

    def start(self, writer_id: str, report: Report, alive: Callable[[str], None]) -> str:
        def reported(facts: Sequence[Fact]) -> "asyncio.Future[Place]":
            answer = report(facts)
            answer.add_done_callback(lambda done: self._answered(done, facts[0]))
            return answer

        worker: str = self._executor.start(writer_id, reported, alive)
        return worker

    def _answered(self, answer: "asyncio.Future[Place]", fact: Fact) -> None:
        if not answer.cancelled() and answer.exception() is None:
            self._world.acknowledge(answer.result(), fact)

    def slots(self) -> int:
        slots: int = self._executor.slots()
        return slots

    def held(self) -> frozenset[str]:
        held: frozenset[str] = self._executor.held()
        return held

    def submit(self, work: Work) -> None:
        assert self.engine is not None
        self.engine.check_fence(f"handed out {work.attempt_id}")
        if not self.engine.loads(work.code_ref):
            self._world.blame(Violation(f"{work.code_ref} was handed to who cannot load it"))
        self._executor.submit(work)

    def cancel(self, attempt_id: str) -> None:
        self._executor.cancel(attempt_id)

    async def close(self) -> None:
        await self._executor.close()

    def abandon(self) -> None:
        self._executor.abandon()


class _PoolExecutor:
    """Sends attempts to the pool; what becomes of them, the ledger says."""

    def __init__(self, pool: "_Pool", draw: Chance) -> None:
        self._pool = pool
        self._draw = draw
        self._sent: set[str] = set()

    def start(self, writer_id: str, report: Report, alive: Callable[[str], None]) -> str:
        return "pool"

    def slots(self) -> int:
        return 4

    def held(self) -> frozenset[str]:
        return frozenset(self._sent)

    def submit(self, work: Work) -> None:
        self._sent.add(work.attempt_id)
        for _ in range(1 + self._draw.chance(0.1)):
            if not self._draw.chance(0.05) or self._pool.world.calm:
                self._pool.send(work, self._draw.delay(1_000, 500_000))

    def cancel(self, attempt_id: str) -> None:
        self._pool.cancelled.add(attempt_id)

    async def close(self) -> None:
        pass

    def abandon(self) -> None:
        pass


class _Pool:
    """Workers with processes of their own, who write what they have to report into the ledger."""

    def __init__(self, world: _World) -> None:
        self.world = world
        self.cancelled: set[str] = set()
        self._inbox: list[Work] = []
        self._arrived = asyncio.Event()
        self._seen: set[str] = set()
        self._draw = world.chance.fork("pool")

    def start(self) -> None:
        process = self.world._process("worker")
        self.world.processes.append(process)
        process.spawn(self.life(process))

    def send(self, work: Work, delay: float) -> None:
        self.world.loop.call_later(delay, self._deliver, work, context=contextvars.Context())

    def _deliver(self, work: Work) -> None:
        self._inbox.append(work)
        self._arrived.set()

    async def life(self, process: Process) -> None:
        engine = _Engine(self.world, self.world.store(process)._replace(lock=None), process)
        self.world.engines[process.name] = engine
        while True:
            with suppress(Unavailable, Conflict):
                await engine.open()
                break
            await asyncio.sleep(0.5)
        while True:
            self._arrived.clear()
            while self._inbox:
                work = self._inbox.pop(0)
                if work.attempt_id not in self._seen:  # a queue delivers more than once
                    self._seen.add(work.attempt_id)
                    asyncio.create_task(self._attempt(engine, work))  # noqa: RUF006 - the process holds it
            await self._arrived.wait()

    async def _attempt(self, engine: Engine, work: Work) -> None:
        draw, world = self._draw, self.world
        world.began(work, once=True)
        kind = draw.below(20)
        if kind < 8:
            await self._tell(engine, TaskStarted(**_about(work), worker_id=engine.writer_id))
        await asyncio.sleep(draw.delay(0, 2_000_000))
        if kind in (8, 9):
            await asyncio.sleep(draw.delay(0, 5_000_000))
            await self._tell(engine, TaskHeartbeat(**_about(work)))
            await asyncio.sleep(draw.delay(0, 5_000_000))
        if kind == 10 and not world.calm:
            return  # never
        if kind in (11, 18):
            await asyncio.sleep(draw.delay(2_000_000, 30_000_000))  # late
        if kind == 19 and not world.calm:
            await asyncio.sleep(draw.delay(0, 120_000_000))  # very late
        if work.attempt_id in self.cancelled and draw.chance(0.7):
            await self._tell(engine, _finished(work, Outcome.CANCELLED, FailureCode.CANCELLED))
            return
        if kind in (12, 13) and not world.calm:
            await self._tell(engine, _finished(work, Outcome.FAILED, FailureCode.NETWORK_ERROR))
        elif kind == 14 and not world.calm:
            await self._tell(engine, _finished(work, Outcome.INTERRUPTED, FailureCode.INTERRUPTED))
        else:
            await self._tell(engine, _finished(work, Outcome.SUCCEEDED))
        if kind in (15, 16, 17):
            await asyncio.sleep(
                draw.delay(0, 8_000_000)
            )  # perhaps nobody thinks of the run any more
        if kind in (15, 16):
            await self._tell(engine, _finished(work, Outcome.SUCCEEDED))  # twice
        if kind == 17:
            await self._tell(engine, _finished(work, Outcome.FAILED, FailureCode.OUT_OF_MEMORY))

    async def _tell(self, engine: Engine, fact: Fact) -> None:
        for _ in range(5):
            with suppress(Unavailable):
                place = await engine.submit([fact], source="worker")
                self.world.acknowledge(place, fact)
                return
            await asyncio.sleep(0.5)


def _about(work: Work) -> dict[str, Any]:
    return {
        "run_id": work.run_id,
        "task_key": work.task_key,
        "attempt": work.attempt,
        "attempt_id": work.attempt_id,
    }


def _finished(work: Work, outcome: Outcome, code: FailureCode | None = None) -> TaskFinished:
    error = TaskFailure(code=code, message="It was simulated.") if code else None
    return TaskFinished(
        **_about(work),
        outcome=outcome,
        error=error,
        retriable=code.row.retriable if code else False,
    )


def _plan(draw: Chance, number: int) -> Plan:
    """A small graph: chains, diamonds, fans, whatever comes."""
    count = 1 + draw.below(7)
    retry = RetryPolicy(max_attempts=3, initial_delay_ms=500, max_delay_ms=5_000)
    timeouts = Timeouts(dispatch_ack_ms=4_000, heartbeat_ms=6_000, execution_ms=30_000)
    asset = PlannedAsset(
        code_version="sim",
        kind="python",
        config={},
        dependencies=(),
        windows=(),
        checks=(),
        gating={},
        retry=to_plain(retry),
        timeouts=to_plain(timeouts),
        resources={},
        priority=0,
    )
    keys = [TaskKey.spell(f"sim/a{i}", None) for i in range(count)]
    stages: list[int] = []
    tasks = []
    for i, key in enumerate(keys):
        above = [j for j in range(i) if draw.chance(0.45)]
        stages.append(max((stages[j] for j in above), default=-1) + 1)
        tasks.append(
            PlannedTask(
                key=key,
                asset=f"sim/a{i}",
                stage=stages[i],
                upstreams=tuple(keys[j] for j in above),
                rerun=True,
            )
        )
    assets = {f"sim/a{i}": asset for i in range(count)}
    tasks.sort(key=lambda task: task.key)
    return Plan(
        fingerprint=fingerprint(assets, tasks),
        request=PlanRequest(selection=f"request {number}"),
        now="2025-01-15T00:00:00Z",
        assets=assets,
        tasks=tuple(tasks),
    )
