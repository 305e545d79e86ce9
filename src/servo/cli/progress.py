"""What `servo run` shows while it runs: a line for each change of a task, or one line that is redrawn.

A view listens to the engine: it is told of every segment that is durable and looks at what the fold
made of it. On a terminal it keeps one line at the bottom and writes failures above it; elsewhere it
writes a line for each task that began, ended or will be tried again. It decides nothing.

Assets may print, and their threads do so at any time: what they print goes above the line, and to
standard error, because standard output is for the answer.
"""

import io
import shutil
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple, TextIO

import click

import servo
from servo.cli.output import coloured, seconds_text, state_style, task_name
from servo.core.failures import TaskFailure
from servo.core.states import TaskState, is_terminal
from servo.events.envelope import Placed
from servo.fold.records import Task
from servo.fold.runs import RunFold
from servo.ports.executor import Work
from servo.runtime.engine import Engine

SHOWN = {
    TaskState.RUNNING: "running",
    TaskState.RETRY_WAIT: "waits",
    TaskState.SKIPPED: "skipped",
    TaskState.CANCELLED: "cancelled",
    TaskState.FAILED: "failed",
    TaskState.REUSED: "reused",
    TaskState.SUCCEEDED: "succeeded",
}
_WIDTH = max(map(len, SHOWN.values()))
_ABOVE = (TaskState.FAILED, TaskState.RETRY_WAIT)
"""What is worth a line of its own on a terminal."""
_NAMES = 60
"""Names are padded up to here, so that what stands beside them lines up."""
_KEPT = 100
"""Tracebacks that are kept for the end."""

_SERVO = Path(servo.__file__).parent


class Failure(NamedTuple):
    """A task that failed, for the summary."""

    task_key: str
    asset: str
    name: str
    attempt: int
    error: TaskFailure | None
    traceback: str | None


class View:
    def __init__(self, *, quiet: bool, clock: Callable[[], int]) -> None:
        self._quiet = quiet
        self._clock = clock
        self._stream: TextIO | None = sys.stderr
        self._coloured = coloured(self._stream)
        self._live = not quiet and self._stream is not None and self._stream.isatty()
        self._began = clock()
        self._engine: Engine | None = None
        self._runs: dict[str, dict[str, tuple[TaskState, int]]] = {}
        """Of each run that is watched: the tasks that were shown, and as what."""
        self._ends: dict[str, int] = {}
        self._texts: dict[tuple[str, str, int], str] = {}
        self._lock = threading.RLock()
        self._width = 0
        self._aside: _Above | None = None
        self._held: list[str] | None = []
        self._drawn = False
        self.failures: dict[str, list[Failure]] = {}
        """Of each run that ended: the tasks that failed."""

    def listen(self, engine: Engine) -> None:
        self._engine = engine
        engine.changed.append(self._changed)

    def watch(self, run_id: str, *, new: bool) -> None:
        """Show what happens to a run from here on; of a new one, also what has happened already."""
        self._let_go()
        run = self._run(run_id)
        known = run.tasks.items() if run is not None and not new else ()
        self._runs[run_id] = {key: (task.state, task.attempt) for key, task in known}
        self._ends[run_id] = 0 if run is None or new else _ends(run)
        if run is not None and run.shape is not None:
            names = [self._name(run, key) for key in run.shape.order]
            self._width = max([self._width, *(min(len(name), _NAMES) for name in names)])
            self._show_changes(run, dict.fromkeys(run.tasks if new else ()))

    @property
    def watched(self) -> bool:
        return bool(self._runs)

    # --- What happens -----------------------------------------------------------------------------

    def raised(self, work: Work, error: BaseException) -> None:
        """An asset's code raised; told by the thread that ran it."""
        told = traceback.TracebackException.from_exception(error)
        own = [frame for frame in told.stack if not Path(frame.filename).is_relative_to(_SERVO)]
        told.stack = traceback.StackSummary.from_list(own)
        if len(self._texts) < _KEPT:
            self._texts[work.run_id, work.task_key, work.attempt] = "".join(told.format()).rstrip()

    def _changed(self, placed: Sequence[Placed]) -> None:
        touched: dict[str, dict[str, None]] = {}
        for each in placed:
            run_id = getattr(each.event.payload, "run_id", None)
            if run_id in self._runs:
                keys = touched.setdefault(run_id, {})
                key = getattr(each.event.payload, "task_key", None)
                if key is not None:
                    keys[key] = None
        for run_id, keys in touched.items():
            run = self._run(run_id)
            if run is not None and run.shape is not None:
                self._show_changes(run, keys)

    def _show_changes(self, run: RunFold, keys: dict[str, None]) -> None:
        shown = self._runs[run.run_id]
        ends = _ends(run)
        if ends != self._ends[run.run_id]:
            # Ends run down the edges: no fact names these tasks.
            self._ends[run.run_id] = ends
            keys = {**keys, **dict.fromkeys(run.tasks)}
        for key in keys:
            task = run.tasks.get(key)
            if task is None or task.state not in SHOWN:
                continue
            known = (task.state, task.attempt)
            if shown.get(key) != known:
                shown[key] = known
                self._task(run, key, task)
        if run.ended and run.run_id not in self.failures:
            self.failures[run.run_id] = self._failed(run)

    def _failed(self, run: RunFold) -> list[Failure]:
        assert run.shape is not None
        return [
            Failure(
                key,
                run.shape.tasks[key].asset,
                self._name(run, key),
                task.attempt,
                _error(task),
                self._texts.get((run.run_id, key, task.attempt)),
            )
            for key, task in sorted(run.tasks.items())
            if task.state is TaskState.FAILED
        ]

    def _run(self, run_id: str) -> RunFold | None:
        assert self._engine is not None
        return self._engine.state.runs.get(run_id)

    def _name(self, run: RunFold, key: str) -> str:
        assert run.shape is not None
        planned = run.shape.tasks[key]
        return task_name(planned.asset, planned.partition)

    # --- How it looks -----------------------------------------------------------------------------

    def _task(self, run: RunFold, key: str, task: Task) -> None:
        if self._quiet or (self._live and task.state not in _ABOVE):
            return
        word = state_style(task.state.value, f"{SHOWN[task.state]:<{_WIDTH}}")
        self.note(f"  {word}  {self._name(run, key):<{self._width}}  {self._detail(task)}".rstrip())

    def _detail(self, task: Task) -> str:
        result = task.current.result if task.current else None
        error = _error(task)
        why = error.message if error else task.reason.sentence
        which = f"attempt {task.attempt}" if task.attempt > 1 else ""
        match task.state:
            case TaskState.RUNNING:
                return which
            case TaskState.SUCCEEDED:
                took = seconds_text(result.duration_us if result else None)
                return click.style(f"{took}  {which}".rstrip(), dim=True)
            case TaskState.FAILED:
                return f"{which}: {why}" if which else why
            case TaskState.RETRY_WAIT:
                wait = (task.retry_at or 0) - self._clock()
                return f"again {f'in {seconds_text(wait)}' if wait > 0 else 'at once'}: {why}"
        return task.reason.sentence

    def note(self, text: str, *, always: bool = False) -> None:
        """A line that stays."""
        if self._stream is None or (self._quiet and not always):
            return
        with self._lock:
            self._clear()
            self._write(f"{text if self._coloured else click.unstyle(text)}\n")
            self.draw()

    def draw(self) -> None:
        """The line at the bottom, as it is now."""
        if not self._live or not self._runs or self._stream is None:
            return
        text = self._line()
        columns = shutil.get_terminal_size().columns
        plain = click.unstyle(text)
        if len(plain) >= columns:
            text = plain[: columns - 2] + "…"
        with self._lock:
            self._write(f"\r\x1b[2K{text if self._coloured else click.unstyle(text)}")
            self._drawn = True

    def _line(self) -> str:
        total = done = failed = 0
        running: list[str] = []
        for run_id in self._runs:
            run = self._run(run_id)
            if run is None or run.shape is None:
                continue
            total += len(run.shape.tasks)
            done += sum(count for state, count in run.counts.items() if is_terminal(state))
            failed += run.counts.get(TaskState.FAILED, 0)
            running += [self._name(run, key) for key in list(run.open)[:3]]
            running += [""] * max(len(run.open) - 3, 0)
        parts = [click.style(f"{done:,} of {total:,}", bold=True)]
        if failed:
            parts.append(click.style(f"{failed:,} failed", fg="red"))
        parts.append(seconds_text(self._clock() - self._began))
        if running:
            names = ", ".join(name for name in running if name)
            parts.append(click.style(f"{len(running)} at work: {names}", fg="cyan"))
        return "  ".join(parts)

    def _clear(self) -> None:
        if self._drawn:
            self._write("\r\x1b[2K")
            self._drawn = False

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # Nobody looks any more (a closed pipe), which is no reason for the run to end.
            self._stream = None

    def close(self) -> None:
        """Nothing is redrawn or held back any more."""
        with self._lock:
            self._live = False
            self._clear()
            self._let_go()
            if self._aside is not None:
                self._aside.end()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """What assets print meanwhile goes to standard error, above the line."""
        if self._stream is None:
            yield
            return
        self._aside = _Above(self)
        with redirect_stdout(self._aside), redirect_stderr(self._aside):
            yield

    def above(self, text: str) -> None:
        """Lines that an asset printed. Before the run was named they would stand above its name."""
        with self._lock:
            if self._held is not None:
                self._held.append(text)
            else:
                self._clear()
                self._write(text)
                self.draw()

    def _let_go(self) -> None:
        held, self._held = self._held, None
        if held:
            self.above("".join(held))


class _Above(io.TextIOBase):
    """Standard output of code that runs while a view writes lines of its own."""

    def __init__(self, view: View) -> None:
        self._view = view
        self._rest = ""
        self._turn = threading.Lock()

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        with self._turn:
            whole, newline, self._rest = (self._rest + text).rpartition("\n")
            if newline:
                self._view.above(whole + newline)
        return len(text)

    def end(self) -> None:
        """What has no end of line yet gets one."""
        with self._turn:
            rest, self._rest = self._rest, ""
            if rest:
                self._view.above(rest + "\n")


def _ends(run: RunFold) -> int:
    """How many tasks ended without a fact of their own, or may have."""
    return run.counts.get(TaskState.SKIPPED, 0) + run.counts.get(TaskState.CANCELLED, 0)


def _error(task: Task) -> TaskFailure | None:
    """The failure of the last attempt that had one."""
    for attempt in reversed(task.attempts):
        if attempt.result is not None and attempt.result.error is not None:
            return attempt.result.error
    return None
