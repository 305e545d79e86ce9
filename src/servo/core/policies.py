"""What the user decides about a task: timeouts, retries, resources, and what a failed check does.

Every policy is a frozen value that is checked when it is made, so a wrong one is refused with a
sentence where it was written and not when it is first needed. Times are whole milliseconds,
durations too; users write them as `10m` (`servo.core.durations`). Decisions are functions of values:
the same attempt of the same task waits equally long wherever it is computed.

    Timeouts        when to give an attempt up: not taken, silent, too long
    RetryPolicy     whether to try again, and after how long
    Resources       what a task needs to run
    GatingPolicy    what a failed check of each severity does

Quality has three layers that are kept apart: severity (how bad it would be; declared), outcome (what
was seen; observed), action (what to do; the policy's). `decide` puts them together.
"""

import enum
import hashlib
import math
import re
from collections.abc import Iterable, Mapping
from typing import Any, Self, TypeVar

import msgspec

from servo.core.durations import MAX_MS, format_duration
from servo.core.failures import FailureCategory, FailureCode, TaskFailure
from servo.errors import Invalid, did_you_mean


def _whole(what: str, value: object, low: int, high: int = MAX_MS) -> None:
    """Refuse what is not an integer in range; `what` names the field for its writer."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Invalid(f"{what} is {value!r}; give a whole number")
    if value < low:
        raise Invalid(f"{what} is {value}; give {low} or more")
    if value > high:
        raise Invalid(f"{what} is larger than {high}; give less")


def _set(struct: msgspec.Struct, field: str, value: object) -> None:
    """Write the normal form of a field while the frozen value is still being made."""
    msgspec.structs.force_setattr(struct, field, value)


# --- Timeouts -------------------------------------------------------------------------------------


class Timeouts(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """When an attempt is given up. A deadline is missed only after it: `now > deadline`.

    Two of them watch the worker and one the work: `dispatch_ack_ms` from being dispatched to having
    begun, `heartbeat_ms` between two signs of life, `execution_ms` for the whole attempt (None: as
    long as it takes).

    A leader that has just taken over, or whose machine slept, has not been listening: it passes
    `listening_since` (when it caught up), and the worker gets a full timeout from then. Execution
    has no such mercy, because the worker knows by itself how long it has been at work.
    """

    dispatch_ack_ms: int = 30_000
    heartbeat_ms: int = 60_000
    execution_ms: int | None = 3_600_000

    def __post_init__(self) -> None:
        _whole("timeouts: dispatch_ack_ms", self.dispatch_ack_ms, 1)
        _whole("timeouts: heartbeat_ms", self.heartbeat_ms, 1)
        if self.execution_ms is not None:
            _whole("timeouts: execution_ms", self.execution_ms, 1)

    def ack_deadline(self, dispatched_at: int, *, listening_since: int | None = None) -> int:
        """Until when a worker must have begun."""
        return _latest(dispatched_at, listening_since) + self.dispatch_ack_ms

    def heartbeat_deadline(
        self,
        started_at: int,
        last_heartbeat: int | None = None,
        *,
        listening_since: int | None = None,
    ) -> int:
        """Until when the next heartbeat must come; the start counts as the first."""
        return _latest(started_at, last_heartbeat, listening_since) + self.heartbeat_ms

    def execution_deadline(self, started_at: int) -> int | None:
        """Until when the attempt must have ended, or None if it may take any time."""
        return None if self.execution_ms is None else started_at + self.execution_ms


def _latest(*moments: int | None) -> int:
    return max(moment for moment in moments if moment is not None)


# --- Retries --------------------------------------------------------------------------------------

_CODE_LIKE = re.compile(r"[A-Z][A-Z0-9_]*\Z")
_CATEGORY_LIKE = re.compile(r"[a-z][a-z0-9_]*\Z")
_CLASS_LIKE = re.compile(r"[^\W\d]\w*(\.([^\W\d]\w*|<locals>))*\Z")


class RetryDecision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Whether another attempt is made, after how long, and why in one sentence."""

    retry: bool
    delay_ms: int
    reason: str


class RetryPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """Whether an attempt that failed is followed by another, and after how long.

    `max_attempts` counts the first one. `retry_on` and `no_retry_on` hold error codes
    (`NETWORK_ERROR`), categories (`transient`) and exception classes: `MyError` means a class of
    that name in any module, `mymod.MyError` that one class; subclasses are meant too. Their order
    does not matter; they are kept sorted. The decision, first match wins:

    1. An interruption runs again at once, always, and is not counted as an attempt.
    2. A cancellation never runs again.
    3. No more than `max_attempts`.
    4. `no_retry_on` says no.
    5. `retry_on` says yes.
    6. The code's own default (`servo.core.failures.CODES`): what is transient, a timeout or the
       machine's fault is retried; what the code, its inputs or its configuration did is not.
    """

    max_attempts: int = 3
    initial_delay_ms: int = 60_000
    max_delay_ms: int = 3_600_000
    multiplier: float = 2.0
    jitter_percent: int = 10
    retry_on: tuple[str, ...] = ()
    no_retry_on: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _whole("retry policy: max_attempts", self.max_attempts, 1)
        _whole("retry policy: initial_delay_ms", self.initial_delay_ms, 0)
        _whole("retry policy: max_delay_ms", self.max_delay_ms, 0)
        if self.max_delay_ms < self.initial_delay_ms:
            raise Invalid(
                f"retry policy: the longest delay ({format_duration(self.max_delay_ms)}) is shorter"
                f" than the first ({format_duration(self.initial_delay_ms)}); raise max_delay_ms or"
                " lower initial_delay_ms"
            )
        _set(self, "multiplier", _multiplier(self.multiplier))
        _whole("retry policy: jitter_percent", self.jitter_percent, 0, 100)
        for field in ("retry_on", "no_retry_on"):
            _set(self, field, _error_names(field, getattr(self, field)))
        both = sorted(set(self.retry_on) & set(self.no_retry_on))
        if both:
            raise Invalid(
                f"retry policy: {both[0]!r} is in retry_on and in no_retry_on; remove it from one"
            )

    def delay_ms(self, attempt: int, seed: str) -> int:
        """How long to wait after `attempt` (from 1) failed, before the next.

        `initial_delay_ms * multiplier ** (attempt - 1)`, at most `max_delay_ms`, shortened by up to
        `jitter_percent`. Jitter only shortens: so it keeps under the cap, and tasks that all reached
        the cap are still spread out. It is drawn from SHA-256 of `attempt` and `seed` (the task's
        identity), in integers only, so every machine and Python agrees; golden values are in
        tests/unit/test_policies.py.
        """
        _whole("retry delay: attempt", attempt, 1)
        delay = _grown(self.initial_delay_ms, self.multiplier, attempt - 1, self.max_delay_ms)
        digest = hashlib.sha256(f"retry:{attempt}:{seed}".encode()).digest()
        draw = int.from_bytes(digest[:8], "big")  # in [0, 2**64)
        return delay - (delay * self.jitter_percent * draw // (100 << 64))

    def decide(
        self, failure: TaskFailure, attempt: int, seed: str = "", *, retriable: bool | None = None
    ) -> RetryDecision:
        """What follows the failure of `attempt`: the number of attempts so far, from 1, leaving out
        those that were interrupted. `retriable` is the code's own default where it was recorded
        with the failure, so that a later table of codes decides nothing about the past."""
        _whole("retry decision: attempt", attempt, 1)
        code = failure.code
        if code is FailureCode.INTERRUPTED:
            return _again(0, "the worker was interrupted, which does not count as an attempt")
        if code is FailureCode.CANCELLED:
            return _no("it was cancelled")
        if attempt >= self.max_attempts:
            return _no(f"attempt {attempt} of {self.max_attempts} was the last")
        delay = self.delay_ms(attempt, seed)
        names = _names_of(failure)
        if name := next((n for n in self.no_retry_on if n in names), None):
            return _no(f"no_retry_on names {name}")
        if name := next((n for n in self.retry_on if n in names), None):
            return _again(delay, f"retry_on names {name}")
        if code.row.retriable if retriable is None else retriable:
            return _again(delay, f"{code} is {code.row.category}, which is retried")
        return _no(f"{code} is {code.row.category}, which is not retried unless retry_on names it")


def _again(delay_ms: int, why: str) -> RetryDecision:
    return RetryDecision(retry=True, delay_ms=delay_ms, reason=f"The task is tried again: {why}.")


def _no(why: str) -> RetryDecision:
    return RetryDecision(retry=False, delay_ms=0, reason=f"The task is not tried again: {why}.")


def _names_of(failure: TaskFailure) -> frozenset[str]:
    """Every name by which a policy can mean this failure."""
    classes = failure.exception_types
    bare = (name.rpartition(".")[2] for name in classes)
    return frozenset((failure.code.value, failure.category.value, *classes, *bare))


def _multiplier(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Invalid(f"retry policy: multiplier is {value!r}; give a number of 1 or more")
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number) or number < 1:
        raise Invalid(f"retry policy: multiplier is {number!r}; give a finite number of 1 or more")
    return number


def _error_names(field: str, names: object) -> tuple[str, ...]:
    """Sorted and without repetition, or a sentence about the name that means nothing."""
    if isinstance(names, str) or not isinstance(names, tuple | list | set | frozenset):
        raise Invalid(
            f"retry policy: {field} is {names!r}; give a list of names, like ['ValueError']"
        )
    for name in names:
        if not isinstance(name, str) or not _CLASS_LIKE.match(name):
            raise Invalid(
                f"retry policy: {field} holds {name!r}, which is neither an error code, a category"
                " nor the name of an exception class; correct it"
            )
        if _CODE_LIKE.match(name):
            known, kind = [code.value for code in FailureCode], "code"
        elif _CATEGORY_LIKE.match(name):
            known, kind = [category.value for category in FailureCategory], "category"
        else:
            continue
        if name not in known:
            # Nearly always a typing error; a class that really is called so has a module too.
            hint = did_you_mean(name, known)
            raise Invalid(
                f"retry policy: {field} holds {name!r}, which is no error {kind}{hint or ';'}"
                f" if it is an exception class, write its module too, like 'mymod.{name}'"
            )
    return tuple(sorted(set(names)))


_FRACTION_BITS = 256


def _grown(initial: int, multiplier: float, steps: int, cap: int) -> int:
    """`min(cap, initial * multiplier ** steps)`, rounded down.

    In fixed point and by squaring, because floats overflow and `pow` differs between machines, while
    exact fractions grow without bound. 256 bits behind the point are far below the smallest step of
    a float above 1 (2**-52), so the result still never falls as `steps` grows. Everything is held
    at `ceiling`, beyond which the cap decides anyway.
    """
    one = 1 << _FRACTION_BITS
    ceiling = (cap + 1) << _FRACTION_BITS
    numerator, denominator = multiplier.as_integer_ratio()
    factor = min(one * numerator // denominator, ceiling)
    power = one
    while steps:
        if steps & 1:
            power = min(power * factor >> _FRACTION_BITS, ceiling)
        factor = min(factor * factor >> _FRACTION_BITS, ceiling)
        steps >>= 1
    return min(cap, initial * power >> _FRACTION_BITS)


# --- Resources ------------------------------------------------------------------------------------

_MEMORY_UNITS = {
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
    "TiB": 2**40,
}
_MEMORY = re.compile(r"([0-9]{1,16}(?:\.[0-9]{1,16})?) ?([A-Za-z]*)\Z")
_MAX_MEMORY = 2**53 - 1  # as for durations: exact in every reader of JSON


class Resources(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What a task needs to run. None: whatever the executor gives by default."""

    cpu_millicores: int | None = None
    """Thousandths of a core: 1500 is one and a half."""
    memory_bytes: int | None = None
    """Users write `512MiB`; see `parse_memory`."""
    gpus: int | None = None

    def __post_init__(self) -> None:
        if self.cpu_millicores is not None:
            _whole("resources: cpu_millicores", self.cpu_millicores, 1)
        if self.memory_bytes is not None:
            _whole("resources: memory_bytes", self.memory_bytes, 1, _MAX_MEMORY)
        if self.gpus is not None:
            _whole("resources: gpus", self.gpus, 0)


def parse_memory(text: object) -> int:
    """Bytes of an amount such as `512MiB` (2**20), `2GB` (10**9) or `1.5GiB`; a unit is required."""
    if not isinstance(text, str):
        raise Invalid(f"memory is {text!r}; write an amount with a unit, like '512MiB'")
    match = _MEMORY.match(text)
    if match is None:
        raise Invalid(f"memory {text!r} is not a number with a unit; write it like '512MiB'")
    number, unit = match.groups()
    size = _MEMORY_UNITS.get(unit)
    if size is None:
        by_letters = {name.lower(): name for name in _MEMORY_UNITS}
        # 512Mi, 2g, 100mb: say what it most likely stands for.
        close = by_letters.get(unit.lower()) or by_letters.get(unit.lower() + "b")
        hint = f"; did you mean '{number}{close}'?" if close and unit else ""
        raise Invalid(
            f"memory {text!r} has {'the unknown unit ' + repr(unit) if unit else 'no unit'}:"
            f" use one of {', '.join(_MEMORY_UNITS)}{hint}",
            position=match.start(2),
        )
    digits, _, fraction = number.partition(".")
    scale: int = 10 ** len(fraction)
    amount, rest = divmod(int(digits + fraction) * size, scale)
    if rest:
        raise Invalid(f"memory {text!r} is not a whole number of bytes; use a smaller unit")
    if not 1 <= amount <= _MAX_MEMORY:
        raise Invalid(f"memory {text!r} is outside 1 byte to {_MAX_MEMORY} bytes; correct it")
    return amount


# --- Quality gates --------------------------------------------------------------------------------


class _Ordered(enum.StrEnum):
    """Compares by order of declaration. Inherited from `str` it would be by the alphabet, silently;
    so a comparison with anything but its own kind is an error."""

    @property
    def order(self) -> int:
        return list(type(self)).index(self)

    def _other(self, other: object) -> int:
        if isinstance(other, type(self)):
            return other.order
        raise TypeError(f"{type(self).__name__} cannot be ordered against {other!r}")

    def __lt__(self, other: object) -> bool:
        return self.order < self._other(other)

    def __le__(self, other: object) -> bool:
        return self.order <= self._other(other)

    def __gt__(self, other: object) -> bool:
        return self.order > self._other(other)

    def __ge__(self, other: object) -> bool:
        return self.order >= self._other(other)


class Severity(_Ordered):
    """How bad it would be if the check failed. A check that says nothing is `error`."""

    INFO = "info"
    WARNING = "warning"
    ERROR = "error"
    CRITICAL = "critical"


DEFAULT_SEVERITY = Severity.ERROR


class CheckOutcome(enum.StrEnum):
    """What was seen."""

    PASSED = "passed"
    FAILED = "failed"
    ERRORED = "errored"
    """The check itself raised or timed out. Gated like a failure: what could not be shown to be
    right is not let through."""
    SKIPPED = "skipped"
    """Not run, because a check before it had already decided. Nothing was seen, so nothing is done."""


class GatingAction(_Ordered):
    """What to do, from the most lenient to the strictest.

    Quarantine stands above blocking: blocked, a version is withheld from the rest of its run;
    quarantined, it is withheld from everybody until a person approves it.
    """

    CONTINUE = "continue"
    WARN = "warn"
    BLOCK_DOWNSTREAM = "block_downstream"
    QUARANTINE = "quarantine"
    FAIL_TASK = "fail_task"
    FAIL_RUN = "fail_run"


_DOES = {
    GatingAction.CONTINUE: "lets the run go on",
    GatingAction.WARN: "warns and lets the run go on",
    GatingAction.BLOCK_DOWNSTREAM: "skips what is downstream",
    GatingAction.QUARANTINE: "puts the version into quarantine",
    GatingAction.FAIL_TASK: "fails the task",
    GatingAction.FAIL_RUN: "fails the whole run",
}


class CheckResult(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What a gate has to know about one check."""

    check_name: str
    outcome: CheckOutcome
    severity: Severity = DEFAULT_SEVERITY


class CheckDecision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What one check's result leads to, and why in one sentence."""

    check_name: str
    action: GatingAction
    reason: str


class GatingDecision(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What the results of a task's checks lead to: the strictest action, and each check's own."""

    action: GatingAction
    checks: tuple[CheckDecision, ...] = ()


_E = TypeVar("_E", Severity, GatingAction)


def _member(kind: type[_E], value: object, subject: str) -> _E:
    """The member that `value` is or spells, or a sentence that begins with `subject`."""
    if isinstance(value, kind):
        return value
    names = [member.value for member in kind]
    if isinstance(value, str) and value in names:
        return kind(value)
    hint = did_you_mean(value, names) if isinstance(value, str) else ""
    raise Invalid(f"{subject} {value!r}{hint or ';'} use one of {', '.join(names)}")


class GatingPolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """What a failed check of each severity does. Left out, a severity does what `standard` does.

    Every severity has its action in the value itself, so an old policy in a plan or a deployment
    never changes its meaning; a default for the rest is resolved when the policy is made (`custom`).

                  info       warning    error              critical
    standard      continue   warn       block_downstream   fail_task
    strict        continue   warn       block_downstream   fail_run
    lenient       continue   continue   warn               block_downstream
    quarantine    continue   continue   quarantine         quarantine
    """

    name: str = "custom"
    info: GatingAction = GatingAction.CONTINUE
    warning: GatingAction = GatingAction.WARN
    error: GatingAction = GatingAction.BLOCK_DOWNSTREAM
    critical: GatingAction = GatingAction.FAIL_TASK

    def __post_init__(self) -> None:
        for severity in Severity:
            action = _member(GatingAction, getattr(self, severity), f"gating policy: {severity} is")
            _set(self, severity.value, action)

    @classmethod
    def named(cls, name: str) -> "GatingPolicy":
        """One of `GATING_PRESETS`: `standard`, `strict`, `lenient`, `quarantine`."""
        if (policy := GATING_PRESETS.get(name)) is not None:
            return policy
        raise Invalid(
            f"gating policy {name!r} is not known{did_you_mean(name, GATING_PRESETS) or ';'} use one of"
            f" {', '.join(GATING_PRESETS)}, or GatingPolicy.custom"
        )

    @classmethod
    def custom(
        cls,
        actions: Mapping[str, str],
        *,
        default: str | None = None,
        name: str = "custom",
    ) -> Self:
        """A policy of the user's own: an action for some severities, and one for all the others.

        Without `default` the others do what `standard` does.
        """
        if name in GATING_PRESETS:
            raise Invalid(f"gating policy {name!r} is one of Servo's own; give yours another name")
        given = {
            _member(Severity, severity, "gating policy: a severity is"): action
            for severity, action in actions.items()
        }
        rest = {} if default is None else dict.fromkeys(Severity, default)
        fields: dict[str, Any] = {s.value: action for s, action in {**rest, **given}.items()}
        return cls(name=name, **fields)

    def action_for(self, severity: Severity) -> GatingAction:
        """What a check of this severity does when it fails."""
        action: GatingAction = getattr(self, severity.value)
        return action

    def decide_check(self, result: CheckResult) -> CheckDecision:
        """What one check's result leads to. One that passed, or was not run, lets the run go on."""
        subject = f"Check {result.check_name!r}"
        action = GatingAction.CONTINUE
        if result.outcome is CheckOutcome.PASSED:
            reason = f"{subject} passed."
        elif result.outcome is CheckOutcome.SKIPPED:
            reason = f"{subject} was not run."
        else:
            action = self.action_for(result.severity)
            saw = "failed" if result.outcome is CheckOutcome.FAILED else "could not be evaluated"
            reason = (
                f"{subject} {saw}; at severity {result.severity} the gating policy"
                f" {self.name!r} {_DOES[action]}."
            )
        return CheckDecision(check_name=result.check_name, action=action, reason=reason)


_A = GatingAction

GATING_PRESETS: dict[str, GatingPolicy] = {
    policy.name: policy
    for policy in (
        GatingPolicy(name="standard"),
        GatingPolicy(name="strict", critical=_A.FAIL_RUN),
        GatingPolicy(
            name="lenient", warning=_A.CONTINUE, error=_A.WARN, critical=_A.BLOCK_DOWNSTREAM
        ),
        GatingPolicy(
            name="quarantine", warning=_A.CONTINUE, error=_A.QUARANTINE, critical=_A.QUARANTINE
        ),
    )
}

DEFAULT_GATING = GatingPolicy.named("standard")


def decide(policy: GatingPolicy, results: Iterable[CheckResult]) -> GatingDecision:
    """What a task's check results lead to under a policy; without any, the run goes on.

    The strictest action is the task's. The order of the results is kept and does not change it.
    """
    checks = tuple(policy.decide_check(result) for result in results)
    strictest = max((check.action for check in checks), default=GatingAction.CONTINUE)
    return GatingDecision(action=strictest, checks=checks)
