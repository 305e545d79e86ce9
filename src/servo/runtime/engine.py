"""The engine: one process's part in one workspace.

    leader      holds the claim of the highest epoch: folds, decides, appends, acts, publishes
    follower    folds what others append; appends requests and reports of its own
    batch       facts that callers handed in at the same time; they share a segment
    step        one batch: fold it as an overlay, let the controllers decide on what comes of it, append
                facts and intents as one segment, and only then answer and act

The order of a step, and what a crash leaves:

    fold batch ─▶ decide ─▶ fold intents ─▶ append (durable) ─▶ keep ─▶ answer callers ─▶ hand out work
         nothing happened: callers were told nothing │ it all happened: the next leader finds what
                                                     │ was asked for and not begun

If the position turns out to be taken, the overlay is taken back and the newcomers are folded. A higher
epoch among them: `Fenced`, and nothing is done any more. Otherwise the facts of the batch go into the
next segment, and intents are computed again, because they were decided on a state that never was.

Who leads: on a local folder the holder of the operating system's lock; elsewhere the holder of the
lease. Either is only a reason to try; the claim in the ledger decides. Before it claims, an engine
loads the newest manifest and catches up with the head.

Publishing runs beside the steps: changed records are taken between two steps, frozen as they are, and
become Parquet while the fold goes on. What has ended leaves memory once it is published.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Literal, NamedTuple

from servo.control.anti_entropy import anti_entropy
from servo.control.deadlines import deadlines
from servo.control.dispatch import (
    MAX_AT_ONCE,
    dispatcher,
    open_attempts,
    ready_dispatch,
    stopping,
    work,
)
from servo.control.heartbeats import heartbeats
from servo.control.moment import Moment
from servo.core.segments import Header, Place
from servo.errors import Conflict, Corrupt, Fenced, Invalid, Unavailable
from servo.events.envelope import ENGINE, Event, Fact, Placed, encode, moment, place
from servo.events.execution import TaskHeartbeat, TaskStarted
from servo.events.orchestration import DispatchRequested, LeaderClaimed, RunCancelRequested
from servo.events.vocabulary import VOCABULARY
from servo.fold.records import Claim, Mark
from servo.fold.state import State, Taken, admit
from servo.fold.table import Row, Table
from servo.fold.tables import TABLES, runs
from servo.fold.tables.run_keys import RunKeys
from servo.ledger.journal import Journal, backoff, patiently
from servo.ledger.lease import TERM_US, Lease
from servo.ledger.loader import load_needs, load_state
from servo.ledger.manifest import moment_text
from servo.ledger.publisher import Publisher
from servo.ledger.snapshot import Snapshot
from servo.ports.executor import Executor
from servo.ports.store import Store
from servo.ports.system import System

PROBE_US = 200_000
"""How often an idle engine looks for segments that others wrote."""
PUBLISH_US = 500_000
"""How long changed rows wait for others to be published with them."""
TICK_US = 1_000_000
"""How often heartbeats are looked through."""
GAP_US = 5_000_000
"""A silence of this length, or a clock that jumped by it: nobody was listening."""
MAX_QUEUE = 8_192
"""Events that wait for a segment; callers beyond it wait to hand theirs in."""
MAX_BATCH = 2_048


class _Batch(NamedTuple):
    events: list[Event]
    lines: list[bytes]
    answer: "asyncio.Future[Place]"


class Engine:
    def __init__(
        self,
        store: Store,
        system: System,
        executor: Executor | None = None,
        *,
        loads: Callable[[str], bool] = lambda _: False,
        adopts: bool = True,
    ) -> None:
        """`adopts`: whether runs that were unfinished when it began to lead are gone on with. Those
        that it asked for itself always are, and those that are asked for while it leads."""
        self.store = store
        self.writer_id = system.new_id()
        self.state = State()
        self.leading = False
        self.changed: list[Callable[[Sequence[Placed]], None]] = []
        """Told of every segment once it is durable and folded."""
        self._system = system
        self._executor = executor
        self._loads = loads
        self._adopts = adopts
        self.own: set[str] = set()
        """Runs that this process asked for."""
        self._led_from: Mark = (0, 0, 0)
        self._worker = ""
        self._journal = Journal(store.log, self.writer_id, system.new_id)
        self._publisher = Publisher(store.objects, system.new_id)
        self._snapshot: Snapshot | None = None
        self._lease = Lease(store.objects, system, self.writer_id)
        self._epoch = 0
        self._queue: list[_Batch] = []
        self._queued = 0
        self._settled = asyncio.Event()
        """There is no overlay; set after each step, whatever came of it."""
        self._turn = asyncio.Lock()
        """A follower does one thing at a time; a leader's steps are alone with the state anyway."""
        self._room = asyncio.Event()
        self._wake = asyncio.Event()
        self._heard: dict[str, int] = {}
        self._as_of = 0
        self._listening_since = 0
        self._clocks = (0, 0)
        self._ticked = 0
        self._more = False
        """Whether the last decision left something for the next, which need not wait for news."""
        self._probed = 0
        self._looked = 0
        self._unpublished: list[Taken] = []
        self._publishing: asyncio.Task[None] | None = None
        self._published_at = 0
        self._published = False
        self._draining = False
        self._closing = False
        self.failure: Exception | None = None
        """Why this engine can do nothing more."""
        self._room.set()

    # --- Reading ----------------------------------------------------------------------------------

    async def open(self) -> None:
        """Load the newest revision and catch up with the head of the ledger."""
        manifest = await patiently(self._publisher.open, self.writer_id)
        snapshot = self._snapshot = Snapshot(self.store.objects, TABLES, manifest)
        # What was read already is kept by the snapshot, so that each try has less to do.
        self.state = await patiently(
            lambda: load_state(snapshot, self.store.objects), self.writer_id
        )
        head = await self._journal.head()
        if head < self.state.position:
            raise Corrupt(
                f"the ledger ends at segment {head}, but revision {manifest.revision} covers it up to"
                f" {self.state.position}: it was cut short; restore it from a copy"
            )
        if head == self.state.position and head:
            (last,) = (await self._journal.read(head))[:1]
            if last.header.hash != self.state.hash:
                raise Corrupt(
                    f"segment {head} is not the one that revision {manifest.revision} was made from:"
                    " the ledger was changed; restore it from a copy"
                )
        await self.catch_up()

    async def follow(self) -> None:
        """As a follower: fold what others appended."""
        async with self._turn:
            if not self.leading:
                await self.catch_up()
                self.state.take()  # it publishes nothing, and loads anew before it leads

    async def catch_up(self) -> None:
        """Fold what others appended. `Fenced` if one of them leads now and this engine did."""
        while found := await self._journal.read(self.state.position + 1):
            for segment in found:
                placed = admit(self.state, segment)
                await self._load(p.event for p in placed)
                self.state.fold(placed)
                self.state.advance(segment.header.position, segment.header.hash)
                self.state.keep()
                self._tell(placed)
                if self.leading and self.state.epoch > self._epoch:
                    raise self._fence()
        self._as_of = self._system.now()
        self._probed = self._system.monotonic()

    async def settled(self) -> None:
        """Wait until the state holds nothing that is not durable. It does until the next await."""
        while self.state.pending:
            self._settled.clear()
            await self._settled.wait()

    async def run_of_key(self, run_key: str) -> Claim | None:
        """The claim that owns a run key."""
        await self.settled()
        known = self.state.records[RunKeys.table.name].get((run_key,))
        if known is None:
            assert self._snapshot is not None, "open() comes first"
            rows = await self._snapshot.find(RunKeys.table, [(run_key,)])
            known = RunKeys().load(rows[0])[1] if rows else None
        return known.owner if known is not None else None

    async def knows_run(self, run_id: str) -> bool:
        await self.settled()
        run = self.state.runs.get(run_id)
        return run.exists if run is not None else await self._run_row(run_id) is not None

    async def summary(self, run_id: str) -> runs.Summary | None:
        """How a run stands, whether it is in memory or not. None: there is no such run."""
        await self.settled()
        row = self.state.run_row(run_id) or await self._run_row(run_id)
        return runs.summary(row) if row is not None else None

    async def _run_row(self, run_id: str) -> Row | None:
        assert self._snapshot is not None, "open() comes first"
        rows = await self._snapshot.find(runs.TABLE, [(run_id,)])
        return rows[0] if rows else None

    @property
    def revision(self) -> int:
        """The newest revision that this engine published or found."""
        return self._publisher.newest.revision

    def new_id(self) -> str:
        return self._system.new_id()

    async def _load(self, events: Iterable[Event]) -> None:
        snapshot, wanted = self._snapshot, list(events)
        assert snapshot is not None, "open() comes first"
        if not wanted or not self.state.needs(wanted):
            return
        await patiently(
            lambda: load_needs(self.state, wanted, snapshot, self.store.objects), self.writer_id
        )

    def _tell(self, placed: Sequence[Placed]) -> None:
        for _, _, _, event in placed:
            fact = event.payload
            if type(fact) is TaskStarted or type(fact) is TaskHeartbeat:
                # By our own clock: the worker's may be wrong by more than the timeout.
                self._alive(fact.attempt_id)
            elif type(fact) is RunCancelRequested:
                self._heard.setdefault(fact.run_id, self._system.now())
        for listener in self.changed:
            listener(placed)

    # --- Writing ----------------------------------------------------------------------------------

    def event(self, fact: Fact, source: str, actor: str | None = None) -> Event:
        """The fact in its envelope, as of now."""
        return Event(
            event_id=self._system.new_id(),
            event_type=type(fact).__name__,
            event_version=fact.version,
            timestamp=moment(self._system.now()),
            source=source,
            tenant_id=self.store.tenant,
            workspace_id=self.store.workspace,
            domain=fact.domain,
            idempotency_key=fact.key(),
            actor=actor,
            payload=fact,
        )

    async def submit(
        self, facts: Sequence[Fact], *, source: str, actor: str | None = None
    ) -> Place:
        """Write facts, together; return the place of the first when they are durable.

        A leader puts them into its next segment. Any other engine appends them itself, as a report.
        """
        if not self.leading and self.failure is None:
            async with self._turn:
                if not self.leading:
                    return await self._report(facts, source, actor)
        while self._queued >= MAX_QUEUE:
            self._room.clear()
            await self._room.wait()
        return await self.hand_in(facts, source, actor)

    def hand_in(
        self, facts: Sequence[Fact], source: str, actor: str | None = None
    ) -> "asyncio.Future[Place]":
        """As `submit` of a leader, without waiting for room: for those who cannot be many."""
        answer: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        if self.failure is not None or not self.leading:
            error = self.failure or Unavailable("this engine does not lead any more; ask another")
            answer.set_exception(error)
            return answer
        try:
            events, lines = self._written(facts, source, actor)
        except Invalid as error:
            answer.set_exception(error)
            return answer
        self._queue.append(_Batch(events, lines, answer))
        self._queued += len(events)
        self._wake.set()
        return answer

    def _written(
        self, facts: Sequence[Fact], source: str, actor: str | None
    ) -> tuple[list[Event], list[bytes]]:
        """The events and their lines. A fact that could not be read back is refused here, because in
        the ledger it would be there for ever."""
        events = [self.event(fact, source, actor) for fact in facts]
        try:
            return events, [VOCABULARY.spell(event) for event in events]
        except Corrupt as error:
            raise Invalid(str(error)) from None

    async def _report(self, facts: Sequence[Fact], source: str, actor: str | None) -> Place:
        events, lines = self._written(facts, source, actor)
        tries = 0
        while True:
            await self.catch_up()
            placed = place(events, self.state.position + 1)
            await self._load(events)
            try:
                header = await self._append(lines, "reporter", self.state.epoch)
            except Conflict:
                tries += 1
                await asyncio.sleep(backoff(tries, events[0].event_id))
                continue
            self.state.fold(placed)
            self.state.advance(header.position, header.hash)
            self.state.keep()
            self._tell(placed)
            return placed[0].place

    async def _append(
        self, lines: Sequence[bytes], kind: Literal["leader", "reporter"], epoch: int
    ) -> Header:
        return await self._journal.append(
            lines,
            position=self.state.position + 1,
            prev_hash=self.state.hash,
            epoch=epoch,
            kind=kind,
            written_at=moment_text(self._system.now()),
        )

    # --- Leading ----------------------------------------------------------------------------------

    async def try_lead(self) -> bool:
        """Lead if nobody else seems to."""
        if self.store.lock is not None:
            if not self.store.lock.acquire():
                return False
        elif not await self._lease.is_free():
            return False
        try:
            async with self._turn:
                await self.lead()
        except Conflict:
            await self._let_go()
            return False
        except Exception:
            await self._let_go()
            raise
        except BaseException:
            self._unlock()
            raise
        return True

    async def _let_go(self) -> None:
        """Of what says that this engine leads; nobody should wait a whole term for that."""
        self._unlock()
        if self.store.lock is None and await self._lease.is_ours():
            await self._lease.release()

    async def lead(self) -> None:
        """Catch up, then claim the workspace. `Conflict`: another engine did so meanwhile."""
        if self.store.lock is None:
            await self._lease.renew()
        lease = asyncio.create_task(self._keep_lease())
        try:
            await self._claim()
        finally:
            lease.cancel()
        self._as_of = self._listening_since = self._system.now()
        self._clocks = (self._system.now(), self._system.monotonic())
        self.leading = True
        if self._executor is not None:
            self._worker = self._executor.start(self.writer_id, self._reported, self._alive)

    async def _claim(self) -> None:
        await self.open()
        known = self.state.epoch
        if self.store.lock is None and not await self._lease.is_ours():
            raise Conflict("another engine found the lease free, too, and took it")
        while True:
            epoch = self.state.epoch + 1
            event = self.event(LeaderClaimed(epoch=epoch, writer_id=self.writer_id), ENGINE)
            try:
                header = await self._append([encode(event)], "leader", epoch)
            except Conflict:
                await self.catch_up()
                if self.state.epoch > known:
                    raise
                continue
            placed = place([event], header.position)
            self.state.fold(placed)
            self.state.advance(header.position, header.hash)
            self.state.keep()
            break
        self._epoch = epoch
        self._led_from = placed[0][:3]
        self._tell(placed)

    def _fence(self) -> Fenced:
        """Somebody newer leads: from here on nothing is written, answered or handed out."""
        self.leading = False
        error = Fenced(
            f"writer {self.state.leader} leads this workspace since epoch {self.state.epoch}; this"
            f" process led in epoch {self._epoch} and does nothing more"
        )
        self._fail(error)
        return error

    def _fail(self, error: BaseException) -> None:
        if not isinstance(error, Exception):
            error = Unavailable("the engine was told to end before this was written")
        self.failure = error
        if self._publishing is not None:
            self._publishing.cancel()
        batches, self._queue, self._queued = self._queue, [], 0
        for batch in batches:
            if not batch.answer.done():
                batch.answer.set_exception(error)
                batch.answer.exception()  # it may be that nobody waits for it any more
        self._room.set()
        self._wake.set()

    def _reported(self, facts: Sequence[Fact]) -> "asyncio.Future[Place]":
        return self.hand_in(facts, "worker")

    def _alive(self, attempt_id: str) -> None:
        self._heard[attempt_id] = self._system.now()

    async def step(self) -> bool:
        """One segment. False: there was nothing to write."""
        batches = self._drain()
        try:
            while True:
                try:
                    return await self._write(batches)
                except Conflict:
                    self.state.undo()
                    self._settled.set()
                    await self.catch_up()
        except BaseException as error:
            # Whether the segment landed may be unknown; nobody is told that it did.
            if self.state.pending:
                self.state.undo()
            self._settled.set()
            self._queue[:0] = batches
            self._fail(error)
            raise

    def _drain(self) -> list[_Batch]:
        taken, count = 0, 0
        while taken < len(self._queue) and count < MAX_BATCH:
            count += len(self._queue[taken].events)
            taken += 1
        batches, self._queue = self._queue[:taken], self._queue[taken:]
        self._queued -= count
        if self._queued < MAX_QUEUE:
            self._room.set()
        return batches

    async def _write(self, batches: Sequence[_Batch]) -> bool:
        events = [event for batch in batches for event in batch.events]
        await self._load(events)
        position = self.state.position + 1
        placed = place(events, position)
        self.state.fold(placed)
        now = self._now()
        intents = [self.event(fact, ENGINE) for fact in self._decide(now)]
        if not events and not intents:
            return False
        decided = [
            Placed(position, len(events) + i, p.at, p.event)
            for i, p in enumerate(place(intents, position))
        ]
        if decided:
            self.state.fold(decided)
        lines = [line for batch in batches for line in batch.lines]
        lines += [encode(event) for event in intents]
        header = await self._append(lines, "leader", self._epoch)
        self.state.advance(header.position, header.hash)
        self.state.keep()
        self._settled.set()
        self._as_of = now.now
        self._act([*events, *intents])
        self._answer(batches, position)
        self._tell([*placed, *decided])
        return True

    def _now(self) -> Moment:
        executor = self._executor
        return Moment(
            now=self._system.now(),
            as_of=self._as_of,
            worker=self._worker,
            slots=executor.slots() if executor is not None and not self._draining else 0,
            loads=self._loads,
            takes=self._takes,
            listening_since=self._listening_since,
            heard=self._heard,
            alone=self.store.lock is not None,
        )

    def _takes(self, run_id: str) -> bool:
        if self._adopts or run_id in self.own:
            return True
        triggered = self.state.runs[run_id].run.triggered
        return triggered is not None and triggered > self._led_from

    def _decide(self, now: Moment) -> list[Fact]:
        """All controllers, on the overlay. Retries and fresh tasks share the executor's slots."""
        self.state.wake(now.now)
        intents: list[Fact] = []
        if now.now - self._ticked >= TICK_US or now.now < self._ticked:
            self._ticked = now.now
            intents += anti_entropy(self.state, now)
            intents += heartbeats(self.state, now)
        intents += deadlines(self.state, now)
        intents += ready_dispatch(self.state, now)
        self._more = len(intents) >= MAX_AT_ONCE
        # Two controllers may give up one attempt, each for its reason: the first is enough.
        return list({intent.key(): intent for intent in reversed(intents)}.values())[::-1]

    def _answer(self, batches: Sequence[_Batch], position: int) -> None:
        index = 0
        for batch in batches:
            if not batch.answer.done():
                batch.answer.set_result(Place(position, index))
            index += len(batch.events)

    def _act(self, events: Sequence[Event]) -> None:
        """What durable facts ask for: hand out attempts, tell workers to stop."""
        if self._executor is None:
            return
        stopped = False
        for event in events:
            fact = event.payload
            if type(fact) is DispatchRequested:
                run = self.state.runs[fact.run_id]
                attempt = run.tasks[fact.task_key].current
                if attempt is not None and attempt.number == fact.attempt:
                    self._executor.submit(work(self.state, run, fact.task_key, attempt))
            elif type(fact) is RunCancelRequested:
                stopped = True
        if stopped:
            self._stop_unwanted()

    def _stop_unwanted(self) -> None:
        assert self._executor is not None
        for attempt_id in stopping(self.state, self._executor.held()):
            self._executor.cancel(attempt_id)

    def _reconcile(self) -> None:
        """Hand out what was asked for and got lost on the way; stop what nobody wants."""
        if self._executor is None or self._closing:
            return
        for item in list(dispatcher(self.state, self._now(), self._executor.held())):
            self._executor.submit(item)
        self._stop_unwanted()
        wanted = open_attempts(self.state)
        wanted.update(self.state.active)
        self._heard = {name: at for name, at in self._heard.items() if name in wanted}

    # --- Living -----------------------------------------------------------------------------------

    async def run(self) -> None:
        """Lead until `close`. `Fenced`, or whatever else stops a leader, is raised."""
        lease = asyncio.create_task(self._keep_lease())
        try:
            while not (self._closing and not self._queue):
                self._check_clocks()
                wrote = await self.step()
                self._publish_soon()
                if wrote:
                    await asyncio.sleep(0)  # others get a turn, also when the disk answers at once
                if not (wrote and (self._queue or self._more)):
                    await self._rest()
                await self._look_around()
        except BaseException as error:
            self.give_up(error)
            raise
        finally:
            self.leading = False
            lease.cancel()

    async def once(self) -> bool:
        """The serverless life: lead, do all there is to do now, publish, let go. False: somebody else
        leads, and does it.

        Workers of such an engine write their reports into the ledger themselves: signs of life are
        heard while nobody leads, so that a takeover is no reason to wait for them again.
        """
        waited = self._system.monotonic()
        while not await self.try_lead():
            # Whoever died with the lease in hand is found out only by who looks for a whole term.
            if self.store.lock is not None or self._system.monotonic() - waited > 2 * TERM_US:
                return False
            await asyncio.sleep(PROBE_US / 1e6)
        self._listening_since = 0
        lease = asyncio.create_task(self._keep_lease())
        try:
            self._reconcile()
            while await self.step():
                pass
        except BaseException as error:
            self.give_up(error)
            raise
        finally:
            self.leading = False
            lease.cancel()
        await self.leave()
        return True

    async def _keep_lease(self) -> None:
        while self.store.lock is None:
            await self._lease.renew()
            await asyncio.sleep(TERM_US / 6e6)

    async def _rest(self) -> None:
        """Wait for something to do, but not for long."""
        if not self._queue:
            self._wake.clear()
            loop = asyncio.get_running_loop()
            timer = loop.call_later(self._idle_us() / 1e6, self._wake.set)
            try:
                await self._wake.wait()
            finally:
                timer.cancel()

    async def _look_around(self) -> None:
        """Now and then, however busy: what others wrote, and what got lost on the way to a worker."""
        now = self._system.monotonic()
        if now - self._looked >= PROBE_US:
            self._looked = now
            if now - self._probed >= PROBE_US:
                await self.catch_up()
            self._reconcile()

    def _idle_us(self) -> int:
        due = self.state.next_due()
        if due is None:
            return PROBE_US
        return max(min(PROBE_US, due - self._system.now() + 1_000), 1_000)

    def _check_clocks(self) -> None:
        """After a sleep or a jump of the clock nobody was listening, so nobody is overdue."""
        now, monotonic = self._system.now(), self._system.monotonic()
        passed = monotonic - self._clocks[1]
        if passed > GAP_US or abs((now - self._clocks[0]) - passed) > GAP_US:
            self._listening_since = now
            self._probed = 0
        self._clocks = (now, monotonic)

    async def close(self) -> None:
        """Stop leading in good order: attempts at work are interrupted and reported."""
        self._draining = True  # a slot that becomes free now is nobody's
        if self._executor is not None and self._worker:
            await self._executor.close()
        self._closing = True
        self._wake.set()

    async def leave(self) -> None:
        """Publish what is left, and let others lead. Comes after `run` has returned."""
        try:
            await self.publish()
        finally:
            self._unlock()
            if self.store.lock is None:
                await self._lease.release()

    def give_up(self, error: BaseException) -> None:
        """Something around the engine failed, and nobody will let it go on."""
        self._fail(error)
        self.leading = False
        if self._executor is not None:
            self._executor.abandon()
        self._unlock()

    def _unlock(self) -> None:
        """Whoever can do nothing more must not keep others from it."""
        if self.store.lock is not None:
            self.store.lock.release()

    # --- Publishing -------------------------------------------------------------------------------

    def _publish_soon(self) -> None:
        """Between two steps: finish a publish that is done, and start the next if it is time."""
        if self._publishing is not None:
            if not self._publishing.done():
                return
            done, self._publishing = self._publishing, None
            error = done.exception()
            if error is None:
                self.state.evict()
            elif not isinstance(error, Unavailable):
                raise error
        if not self.state.dirty and not self._unpublished and self._published:
            return
        now = self._system.monotonic()
        if now - self._published_at < PUBLISH_US:
            return
        self._published_at = now
        self._take()
        self._publishing = asyncio.create_task(self._publish(self.state.position, self.state.hash))

    def _take(self) -> None:
        if self.state.dirty:
            self._unpublished.append(self.state.take())

    async def publish(self) -> None:
        """Make everything that is durable visible now. Not while `run` is at work, which does it
        itself: between two steps nobody else may."""
        if self._publishing is not None:
            publishing, self._publishing = self._publishing, None
            with suppress(Unavailable):  # its rows are tried again below
                await publishing
        self._take()
        if self._unpublished or not self._published:
            await self._publish(self.state.position, self.state.hash)

    async def _publish(self, position: int, ledger_hash: str) -> None:
        taken = list(self._unpublished)
        rows = await asyncio.to_thread(_rows, taken)
        manifest = await self._publisher.publish(
            position=position,
            ledger_hash=ledger_hash,
            epoch=self._epoch,
            published_at=self._system.now(),
            rows=rows,
        )
        self._unpublished = self._unpublished[len(taken) :]
        self._published = True
        self._snapshot = Snapshot(self.store.objects, TABLES, manifest, warm=self._snapshot)


def _rows(taken: Sequence[Taken]) -> dict[Table, list[Row]]:
    rows: dict[Table, list[Row]] = {}
    for some in taken:
        for table, found in some.rows().items():
            rows.setdefault(table, []).extend(found)
    return rows
