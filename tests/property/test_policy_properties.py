"""Laws of durations, retries, gates and failures, on random values."""

import random
from fractions import Fraction

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from servo.core import canonical
from servo.core.durations import MAX_MS, format_duration, parse_duration
from servo.core.failures import FailureCategory, FailureCode, TaskFailure
from servo.core.plain import to_plain
from servo.core.policies import (
    GATING_PRESETS,
    CheckOutcome,
    CheckResult,
    GatingAction,
    GatingDecision,
    GatingPolicy,
    Resources,
    RetryPolicy,
    Severity,
    Timeouts,
    decide,
    parse_memory,
)

milliseconds = st.integers(0, 10**10)
multipliers = st.one_of(
    st.floats(1, 4), st.floats(1, allow_infinity=False), st.sampled_from([1.0, 1 + 2**-52])
)
attempts = st.one_of(st.integers(1, 100), st.integers(1, 10**12))
error_names = st.one_of(
    st.sampled_from([*map(str, FailureCode), *map(str, FailureCategory)]),
    st.sampled_from(["ValueError", "LookupError", "OSError", "mymod.MyError", "MyError"]),
)


@st.composite
def retry_policies(draw: st.DrawFn, jitter: st.SearchStrategy[int] | None = None) -> RetryPolicy:
    first, last = sorted((draw(milliseconds), draw(milliseconds)))
    names = draw(st.lists(error_names, unique=True))
    cut = draw(st.integers(0, len(names)))
    return RetryPolicy(
        max_attempts=draw(st.integers(1, 20)),
        initial_delay_ms=first,
        max_delay_ms=last,
        multiplier=draw(multipliers),
        jitter_percent=draw(st.integers(0, 100) if jitter is None else jitter),
        retry_on=tuple(names[:cut]),
        no_retry_on=tuple(names[cut:]),
    )


task_failures = st.builds(
    TaskFailure,
    code=st.sampled_from(FailureCode),
    message=st.text(min_size=1, max_size=50).filter(str.strip),
    exception_types=st.lists(st.sampled_from(["mymod.MyError", "ValueError", "OSError"])).map(
        tuple
    ),
    traceback_object=st.none() | st.just("sha256:00"),
    details=st.dictionaries(
        st.text(), st.text() | st.integers(-(2**63), 2**63 - 1) | st.booleans()
    ),
)
gating_actions = st.sampled_from(GatingAction)
gating_policies = st.builds(
    GatingPolicy,
    name=st.text(),
    info=gating_actions,
    warning=gating_actions,
    error=gating_actions,
    critical=gating_actions,
)
check_results = st.builds(
    CheckResult,
    check_name=st.text(),
    outcome=st.sampled_from(CheckOutcome),
    severity=st.sampled_from(Severity),
)


# --- Durations and memory -------------------------------------------------------------------------


@given(st.integers(0, MAX_MS))
def test_a_duration_survives_being_written_and_read(duration: int) -> None:
    assert parse_duration(format_duration(duration)) == duration


@given(st.integers(1, 2**32), st.sampled_from([("MiB", 2**20), ("KB", 1000), ("B", 1)]))
def test_memory_is_its_number_times_its_unit(number: int, unit: tuple[str, int]) -> None:
    name, size = unit
    assert parse_memory(f"{number}{name}") == number * size


# --- Retries --------------------------------------------------------------------------------------


@given(retry_policies(jitter=st.just(0)), attempts, attempts, st.text())
def test_without_jitter_the_delay_never_falls_and_never_passes_the_cap(
    policy: RetryPolicy, one: int, other: int, seed: str
) -> None:
    earlier, later = sorted((one, other))
    assert (
        policy.initial_delay_ms
        <= policy.delay_ms(earlier, seed)
        <= policy.delay_ms(later, seed)
        <= policy.max_delay_ms
    )


@given(retry_policies(jitter=st.just(0)), st.integers(1, 60))
def test_without_jitter_the_delay_is_the_exact_power_rounded_down(
    policy: RetryPolicy, attempt: int
) -> None:
    exact = policy.initial_delay_ms * Fraction(policy.multiplier) ** (attempt - 1)
    expected = min(policy.max_delay_ms, int(exact))
    # Truncation can turn a hair above a whole number into a hair below it, and nothing more.
    assert expected - policy.delay_ms(attempt, "") in (0, 1)


@given(retry_policies(), attempts, st.text())
def test_jitter_only_shortens_and_by_no_more_than_it_may(
    policy: RetryPolicy, attempt: int, seed: str
) -> None:
    steady = msgspec.structs.replace(policy, jitter_percent=0).delay_ms(attempt, seed)
    delay = policy.delay_ms(attempt, seed)
    assert 0 <= delay <= steady
    assert (steady - delay) * 100 <= steady * policy.jitter_percent


@given(retry_policies(), attempts, st.text())
def test_a_delay_is_the_same_whenever_it_is_computed(
    policy: RetryPolicy, attempt: int, seed: str
) -> None:
    again = msgspec.json.decode(msgspec.json.encode(policy), type=RetryPolicy)
    assert policy.delay_ms(attempt, seed) == again.delay_ms(attempt, seed)


@given(retry_policies(), task_failures, st.integers(1, 30))
def test_a_failure_that_is_not_retried_now_is_not_retried_later(
    policy: RetryPolicy, failure: TaskFailure, attempt: int
) -> None:
    if policy.decide(failure, attempt + 1).retry:
        assert policy.decide(failure, attempt).retry


@given(retry_policies(), task_failures, st.integers(1, 30))
def test_only_an_interruption_goes_past_the_last_attempt(
    policy: RetryPolicy, failure: TaskFailure, attempt: int
) -> None:
    if attempt >= policy.max_attempts:
        assert policy.decide(failure, attempt).retry == (failure.code is FailureCode.INTERRUPTED)


# --- Gates ----------------------------------------------------------------------------------------


@given(st.sampled_from(list(GATING_PRESETS.values())), st.sampled_from(Severity))
def test_a_preset_never_does_less_about_something_worse(
    policy: GatingPolicy, severity: Severity
) -> None:
    for worse in Severity:
        if worse >= severity:
            assert policy.action_for(worse) >= policy.action_for(severity)


@given(gating_policies, st.lists(check_results), st.lists(check_results))
def test_more_results_never_make_a_gate_more_lenient(
    policy: GatingPolicy, some: list[CheckResult], more: list[CheckResult]
) -> None:
    assert decide(policy, some + more).action >= decide(policy, some).action


@given(gating_policies, st.lists(check_results), st.randoms(use_true_random=False))
def test_the_order_of_results_does_not_change_what_is_done(
    policy: GatingPolicy, results: list[CheckResult], rng: random.Random
) -> None:
    shuffled = rng.sample(results, len(results))
    assert decide(policy, shuffled).action is decide(policy, results).action


@given(gating_policies, st.lists(check_results, min_size=1))
def test_a_gate_does_what_its_strictest_check_does(
    policy: GatingPolicy, results: list[CheckResult]
) -> None:
    decision = decide(policy, results)
    assert decision.action in {check.action for check in decision.checks}
    assert all(check.action <= decision.action for check in decision.checks)
    assert [check.check_name for check in decision.checks] == [r.check_name for r in results]


# --- Round trips ----------------------------------------------------------------------------------

policies: st.SearchStrategy[msgspec.Struct] = st.one_of(
    retry_policies(),
    gating_policies,
    st.builds(
        Timeouts,
        dispatch_ack_ms=st.integers(1, MAX_MS),
        heartbeat_ms=st.integers(1, MAX_MS),
        execution_ms=st.none() | st.integers(1, MAX_MS),
    ),
    st.builds(
        Resources,
        cpu_millicores=st.none() | st.integers(1, 10**6),
        memory_bytes=st.none() | st.integers(1, MAX_MS),
        gpus=st.none() | st.integers(0, 64),
    ),
)


@given(st.one_of(policies, task_failures, check_results))
def test_a_value_survives_being_written_and_read(value: msgspec.Struct) -> None:
    assert msgspec.json.decode(msgspec.json.encode(value), type=type(value)) == value


@given(gating_policies, st.lists(check_results))
def test_a_decision_survives_being_written_and_read(
    policy: GatingPolicy, results: list[CheckResult]
) -> None:
    decision = decide(policy, results)
    assert msgspec.json.decode(msgspec.json.encode(decision), type=GatingDecision) == decision


@given(policies)
def test_a_policy_read_back_has_the_same_fingerprint(policy: msgspec.Struct) -> None:
    again = msgspec.json.decode(msgspec.json.encode(policy), type=type(policy))
    assert canonical.fingerprint(to_plain(again)) == canonical.fingerprint(to_plain(policy))
