"""Policies: what is refused, what is decided, and golden values; the laws are in tests/property."""

import subprocess
import sys
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from servo.core import canonical
from servo.core.durations import MAX_MS, format_duration, parse_duration
from servo.core.failures import FailureCode, TaskFailure, exception_type_names
from servo.core.plain import from_plain, to_plain
from servo.core.policies import (
    DEFAULT_GATING,
    DEFAULT_SEVERITY,
    GATING_PRESETS,
    CheckOutcome,
    CheckResult,
    GatingAction,
    GatingPolicy,
    Resources,
    RetryPolicy,
    Severity,
    Timeouts,
    decide,
    parse_memory,
)
from servo.errors import Invalid


class MyError(ConnectionError):
    pass


def failure(code: FailureCode, *exception_types: str) -> TaskFailure:
    return TaskFailure(code=code, message="It failed.", exception_types=exception_types)


def raised(exception: type[BaseException]) -> TaskFailure:
    return TaskFailure.of_exception(exception_type_names(exception))


# --- Durations ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("500ms", 500),
        ("90s", 90_000),
        ("10m", 600_000),
        ("2h", 7_200_000),
        ("1d", 86_400_000),
        ("1h30m", 5_400_000),
        ("1d2h3m4s5ms", 93_784_005),
        ("0s", 0),
        ("010m", 600_000),
        (timedelta(minutes=10), 600_000),
    ],
)
def test_a_duration_is_read(text: str | timedelta, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "is empty"),
        ("10", "has no unit: write '10s'"),
        (10, "duration 10 has no unit: write '10s'"),
        (0.5, "duration 0.5 has no unit"),
        (True, "a duration is a string like '10m', not True"),
        (None, "a duration is a string like '10m', not None"),
        ("1.5h", "not understood at character 1"),
        ("-5m", "not understood at character 1"),
        ("10 m", "not understood at character 1"),
        ("10min", "not understood at character 4"),
        ("10M", "not understood at character 1"),
        ("١٠m", "not understood at character 1"),
        ("30m1h", "the unit 'h' is repeated or follows a smaller one"),
        ("1h1h", "the unit 'h' is repeated"),
        ("soon", "like '10m' or '1h30m'"),
        ("9" * 5000 + "s", "not understood"),
        ("9999999999999999d", "longer than Servo can hold"),
        (timedelta(seconds=-1), "is negative"),
        (timedelta(microseconds=1), "not a whole number of milliseconds"),
        (timedelta.max, "longer than Servo can hold"),
    ],
)
def test_nonsense_is_not_a_duration(value: object, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_duration(value)
    assert says in str(refused.value)
    assert len(str(refused.value)) < 250


def test_the_place_in_a_wrong_duration_is_pointed_at() -> None:
    with pytest.raises(Invalid) as refused:
        parse_duration("1h20x")
    assert refused.value.position == 2


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [(0, "0s"), (5_400_000, "1h30m"), (90_000, "1m30s"), (86_400_001, "1d1ms"), (999, "999ms")],
)
def test_a_duration_is_written_in_the_largest_units(milliseconds: int, text: str) -> None:
    assert format_duration(milliseconds) == text


def test_a_negative_duration_is_not_written() -> None:
    with pytest.raises(Invalid, match="-1 ms is negative"):
        format_duration(-1)


# --- Timeouts -------------------------------------------------------------------------------------


def test_the_default_timeouts_are_those_of_the_design() -> None:
    assert Timeouts() == Timeouts(
        dispatch_ack_ms=30_000, heartbeat_ms=60_000, execution_ms=3_600_000
    )


def test_a_worker_must_begin_within_the_acknowledgement_timeout() -> None:
    assert Timeouts().ack_deadline(1_000) == 31_000


def test_the_start_counts_as_the_first_heartbeat() -> None:
    assert Timeouts().heartbeat_deadline(1_000) == 61_000


def test_each_heartbeat_moves_the_deadline() -> None:
    assert Timeouts().heartbeat_deadline(1_000, 50_000) == 110_000


def test_an_old_heartbeat_does_not_move_the_deadline_back() -> None:
    assert Timeouts().heartbeat_deadline(50_000, 1_000) == 110_000


def test_a_leader_that_took_over_gives_a_full_timeout() -> None:
    timeouts = Timeouts()
    assert timeouts.heartbeat_deadline(1_000, 2_000, listening_since=500_000) == 560_000
    assert timeouts.ack_deadline(1_000, listening_since=500_000) == 530_000


def test_having_listened_for_long_changes_no_deadline() -> None:
    timeouts = Timeouts()
    assert timeouts.heartbeat_deadline(1_000, 2_000, listening_since=0) == 62_000
    assert timeouts.ack_deadline(1_000, listening_since=0) == 31_000


def test_an_execution_has_a_deadline_unless_it_may_take_any_time() -> None:
    assert Timeouts(execution_ms=5).execution_deadline(10) == 15
    assert Timeouts(execution_ms=None).execution_deadline(10) is None


@pytest.mark.parametrize("field", ["dispatch_ack_ms", "heartbeat_ms", "execution_ms"])
@pytest.mark.parametrize("value", [0, -1, "10m", 1.5, True, MAX_MS + 1])
def test_a_timeout_that_is_none_is_refused_by_name(field: str, value: Any) -> None:
    with pytest.raises(Invalid, match=f"timeouts: {field} is "):
        Timeouts(**{field: value})


# --- Retry delays ---------------------------------------------------------------------------------


def test_the_delay_doubles_up_to_the_cap() -> None:
    policy = RetryPolicy(jitter_percent=0)
    minutes = [policy.delay_ms(attempt, "any") // 60_000 for attempt in range(1, 9)]
    assert minutes == [1, 2, 4, 8, 16, 32, 60, 60]


def test_jitter_has_golden_values() -> None:
    # For ever: an engine in another language, or the next version, must wait equally long.
    policy = RetryPolicy()
    delays = [policy.delay_ms(attempt, "run/task") for attempt in (1, 2, 3, 7, 10_000)]
    assert delays == [57913, 119256, 238485, 3291044, 3360682]


def test_other_tasks_get_another_jitter() -> None:
    policy = RetryPolicy()
    assert len({policy.delay_ms(1, f"task-{n}") for n in range(100)}) > 90


def test_tasks_at_the_cap_are_still_spread_out() -> None:
    policy = RetryPolicy()
    delays = {policy.delay_ms(50, f"task-{n}") for n in range(100)}
    assert len(delays) > 90
    assert max(delays) <= policy.max_delay_ms


def test_a_huge_attempt_and_a_huge_multiplier_end_at_the_cap() -> None:
    policy = RetryPolicy(multiplier=1e308, jitter_percent=0)
    assert policy.delay_ms(10_000, "") == policy.delay_ms(10**15, "") == policy.max_delay_ms


def test_the_smallest_multiplier_above_one_still_grows() -> None:
    policy = RetryPolicy(
        multiplier=1 + 2**-52, jitter_percent=0, initial_delay_ms=10**9, max_delay_ms=10**10
    )
    delays = [policy.delay_ms(10**exponent, "") for exponent in range(16)]
    assert delays == sorted(delays)
    assert delays[0] == 10**9 < delays[-1] < 10**10


def test_without_an_initial_delay_there_is_none() -> None:
    assert RetryPolicy(initial_delay_ms=0).delay_ms(7, "any") == 0


def test_full_jitter_stays_between_nothing_and_the_delay() -> None:
    policy = RetryPolicy(jitter_percent=100)
    delays = [policy.delay_ms(1, f"task-{n}") for n in range(500)]
    assert 0 <= min(delays) < 1_000
    assert 59_000 < max(delays) <= 60_000


def test_attempts_are_counted_from_one() -> None:
    with pytest.raises(Invalid, match="attempt is 0; give 1 or more"):
        RetryPolicy().delay_ms(0, "any")


def test_a_delay_does_not_depend_on_the_hash_seed_of_the_process() -> None:
    code = (
        "from servo.core.policies import RetryPolicy;print(RetryPolicy().delay_ms(3, 'run/task'))"
    )
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": ":".join(sys.path)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1")
    }
    assert seen == {f"{RetryPolicy().delay_ms(3, 'run/task')}\n"}


# --- Retry decisions ------------------------------------------------------------------------------


@pytest.mark.parametrize("code", FailureCode)
def test_by_default_the_code_decides(code: FailureCode) -> None:
    assert RetryPolicy().decide(failure(code), 1).retry == code.row.retriable


def test_the_last_attempt_is_not_followed_by_another() -> None:
    policy, network = RetryPolicy(max_attempts=3), failure(FailureCode.NETWORK_ERROR)
    assert [policy.decide(network, attempt).retry for attempt in (1, 2, 3, 4)] == [
        True,
        True,
        False,
        False,
    ]


def test_an_interruption_never_costs_an_attempt_whatever_the_policy_says() -> None:
    policy = RetryPolicy(max_attempts=1, no_retry_on=("INTERRUPTED", "interrupted"))
    decision = policy.decide(failure(FailureCode.INTERRUPTED), 1)
    assert (decision.retry, decision.delay_ms) == (True, 0)


def test_a_cancellation_is_never_retried() -> None:
    policy = RetryPolicy(retry_on=("CANCELLED", "cancelled"))
    assert not policy.decide(failure(FailureCode.CANCELLED), 1).retry


@pytest.mark.parametrize(
    "name",
    ["USER_CODE_EXCEPTION", "user_code", "KeyError", "LookupError", "Exception"],
)
def test_retry_on_takes_codes_categories_and_classes_with_their_subclasses(name: str) -> None:
    key_error = raised(KeyError)
    assert not RetryPolicy().decide(key_error, 1).retry
    assert RetryPolicy(retry_on=(name,)).decide(key_error, 1).retry


@pytest.mark.parametrize(
    "name", ["NETWORK_ERROR", "transient", "MyError", f"{__name__}.MyError", "OSError"]
)
def test_no_retry_on_takes_codes_categories_and_classes_with_their_subclasses(name: str) -> None:
    assert RetryPolicy().decide(raised(MyError), 1).retry
    assert not RetryPolicy(no_retry_on=(name,)).decide(raised(MyError), 1).retry


def test_a_class_named_with_its_module_is_that_class_only() -> None:
    policy = RetryPolicy(retry_on=("mymod.MyError",))
    assert policy.decide(failure(FailureCode.USER_CODE_EXCEPTION, "mymod.MyError"), 1).retry
    assert not policy.decide(failure(FailureCode.USER_CODE_EXCEPTION, "other.MyError"), 1).retry


def test_a_class_is_not_meant_by_the_end_of_its_name() -> None:
    policy = RetryPolicy(retry_on=("Error",))
    assert not policy.decide(failure(FailureCode.USER_CODE_EXCEPTION, "mymod.MyError"), 1).retry


def test_no_retry_on_beats_retry_on() -> None:
    policy = RetryPolicy(retry_on=("KeyError",), no_retry_on=("LookupError",))
    assert not policy.decide(raised(KeyError), 1).retry


def test_retry_on_adds_to_the_default_and_does_not_replace_it() -> None:
    policy = RetryPolicy(retry_on=("KeyError",))
    assert policy.decide(failure(FailureCode.NETWORK_ERROR), 1).retry


@pytest.mark.parametrize(
    ("policy", "failed", "attempt", "reason"),
    [
        (RetryPolicy(), raised(MyError), 3, "not tried again: attempt 3 of 3 was the last."),
        (RetryPolicy(), raised(MyError), 1, "tried again: NETWORK_ERROR is transient"),
        (RetryPolicy(), raised(KeyError), 1, "not retried unless retry_on names it."),
        (RetryPolicy(retry_on=("KeyError",)), raised(KeyError), 1, "retry_on names KeyError."),
    ],
)
def test_a_decision_says_why_in_a_sentence(
    policy: RetryPolicy, failed: TaskFailure, attempt: int, reason: str
) -> None:
    decision = policy.decide(failed, attempt)
    assert reason in decision.reason
    assert decision.reason.startswith("The task is ")
    assert decision.reason.endswith(".")


def test_a_decision_carries_the_delay_of_its_attempt() -> None:
    policy = RetryPolicy()
    decision = policy.decide(raised(MyError), 2, seed="run/task")
    assert decision.delay_ms == policy.delay_ms(2, "run/task")


# --- Retry policies -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"max_attempts": 0}, "max_attempts is 0; give 1 or more"),
        ({"max_attempts": "3"}, "max_attempts is '3'; give a whole number"),
        ({"initial_delay_ms": -1}, "initial_delay_ms is -1; give 0 or more"),
        ({"max_delay_ms": -1}, "max_delay_ms is -1; give 0 or more"),
        ({"max_delay_ms": 1_000}, "the longest delay (1s) is shorter than the first (1m)"),
        ({"multiplier": 0.5}, "multiplier is 0.5; give a finite number of 1 or more"),
        ({"multiplier": float("nan")}, "multiplier is nan"),
        ({"multiplier": float("inf")}, "multiplier is inf"),
        ({"multiplier": 10**400}, "multiplier is inf"),
        ({"multiplier": "2"}, "multiplier is '2'; give a number"),
        ({"jitter_percent": 101}, "jitter_percent is larger than 100"),
        ({"jitter_percent": 0.5}, "jitter_percent is 0.5; give a whole number"),
        ({"retry_on": "ValueError"}, "give a list of names, like ['ValueError']"),
        ({"retry_on": (ValueError,)}, "retry_on holds <class 'ValueError'>"),
        ({"retry_on": ("",)}, "retry_on holds ''"),
        ({"retry_on": ("a b",)}, "retry_on holds 'a b'"),
        ({"retry_on": ("NETWORK_EROR",)}, "did you mean 'NETWORK_ERROR'?"),
        ({"no_retry_on": ("transiet",)}, "no_retry_on holds 'transiet'"),
        ({"no_retry_on": ("transiet",)}, "did you mean 'transient'?"),
        ({"retry_on": ("zzz",)}, "write its module too, like 'mymod.zzz'"),
        (
            {"retry_on": ("KeyError",), "no_retry_on": ("KeyError",)},
            "'KeyError' is in retry_on and in no_retry_on; remove it from one",
        ),
    ],
)
def test_a_wrong_retry_policy_is_refused_with_a_sentence(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid) as refused:
        RetryPolicy(**fields)
    assert str(refused.value).startswith("retry policy: ")
    assert says in str(refused.value)


def test_a_wrong_retry_policy_is_refused_when_it_is_read_too() -> None:
    with pytest.raises(Invalid, match="max_attempts is 0"):
        from_plain({"max_attempts": 0}, RetryPolicy, "the policy")


def test_the_order_of_names_does_not_make_another_policy() -> None:
    names: Any = ["transient", "KeyError", "transient"]
    assert RetryPolicy(retry_on=names) == RetryPolicy(retry_on=("KeyError", "transient"))


def test_a_whole_multiplier_is_the_same_policy_as_its_float() -> None:
    whole, fraction = RetryPolicy(multiplier=2), RetryPolicy(multiplier=2.0)
    assert canonical.dumps(to_plain(whole)) == canonical.dumps(to_plain(fraction))


def test_the_plain_form_of_a_policy_has_a_canonical_spelling() -> None:
    assert canonical.dumps(to_plain(RetryPolicy(multiplier=1.5))) == (
        b'{"initial_delay_ms":60000,"jitter_percent":10,"max_attempts":3,"max_delay_ms":3600000,'
        b'"multiplier":{"$float":"1.5"},"no_retry_on":[],"retry_on":[]}'
    )


@pytest.mark.parametrize(
    "policy", [Timeouts(), RetryPolicy(), Resources(memory_bytes=1), GatingPolicy()]
)
def test_every_policy_has_a_fingerprint_and_a_hash(policy: msgspec.Struct) -> None:
    assert canonical.fingerprint(to_plain(policy)).startswith("sha256:")
    assert isinstance(hash(policy), int)


# --- Resources ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("512MiB", 512 * 2**20),
        ("2GB", 2 * 10**9),
        ("1.5GiB", 3 * 2**29),
        ("0.5 KiB", 512),
        ("1024B", 1024),
        ("1TiB", 2**40),
    ],
)
def test_memory_is_read(text: str, size: int) -> None:
    assert parse_memory(text) == size


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("512", "'512' has no unit"),
        ("512Mi", "did you mean '512MiB'?"),
        ("2g", "did you mean '2GB'?"),
        ("100mb", "did you mean '100MB'?"),
        ("5 parsecs", "unknown unit 'parsecs'"),
        ("much", "not a number with a unit"),
        ("-1GB", "not a number with a unit"),
        ("0.3B", "not a whole number of bytes"),
        ("0MiB", "outside 1 byte"),
        ("9999999999TiB", "outside 1 byte"),
        (512, "memory is 512; write an amount with a unit"),
        ("", "not a number with a unit"),
    ],
)
def test_nonsense_is_not_memory(value: object, says: str) -> None:
    with pytest.raises(Invalid) as refused:
        parse_memory(value)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"cpu_millicores": 0}, "resources: cpu_millicores is 0; give 1 or more"),
        ({"cpu_millicores": 0.5}, "resources: cpu_millicores is 0.5; give a whole number"),
        ({"memory_bytes": "512MiB"}, "resources: memory_bytes is '512MiB'; give a whole number"),
        ({"gpus": -1}, "resources: gpus is -1; give 0 or more"),
    ],
)
def test_impossible_resources_are_refused(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(Invalid) as refused:
        Resources(**fields)
    assert says in str(refused.value)


# --- Gates ----------------------------------------------------------------------------------------


def failed(severity: Severity, name: str = "c") -> CheckResult:
    return CheckResult(check_name=name, outcome=CheckOutcome.FAILED, severity=severity)


def actions(policy: GatingPolicy) -> str:
    return " ".join(policy.action_for(severity) for severity in Severity)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("standard", "continue warn block_downstream fail_task"),
        ("strict", "continue warn block_downstream fail_run"),
        ("lenient", "continue continue warn block_downstream"),
        ("quarantine", "continue continue quarantine quarantine"),
    ],
)
def test_the_presets_are_those_of_the_design(name: str, expected: str) -> None:
    assert actions(GatingPolicy.named(name)) == expected


def test_every_preset_is_drawn_in_the_docstring() -> None:
    drawn = [line.split() for line in (GatingPolicy.__doc__ or "").splitlines()]
    for name, policy in GATING_PRESETS.items():
        assert [name, *actions(policy).split()] in drawn


def test_the_default_policy_is_standard_and_the_default_severity_error() -> None:
    assert DEFAULT_GATING.name == "standard"
    assert DEFAULT_SEVERITY is Severity.ERROR
    assert CheckResult(check_name="c", outcome=CheckOutcome.FAILED).severity is Severity.ERROR


def test_an_unknown_policy_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(Invalid, match="'strickt' is not known; did you mean 'strict'"):
        GatingPolicy.named("strickt")


def test_severities_compare_by_how_bad_they_are_not_by_the_alphabet() -> None:
    assert sorted(Severity) == list(Severity)
    assert Severity.INFO < Severity.WARNING < Severity.ERROR < Severity.CRITICAL
    assert max(Severity.CRITICAL, Severity.INFO) is Severity.CRITICAL
    assert Severity.ERROR >= Severity.ERROR
    assert Severity.INFO <= Severity.ERROR


def test_actions_compare_by_strictness() -> None:
    assert sorted(GatingAction) == list(GatingAction)
    assert GatingAction.FAIL_RUN > GatingAction.FAIL_TASK > GatingAction.QUARANTINE
    assert GatingAction.QUARANTINE > GatingAction.BLOCK_DOWNSTREAM > GatingAction.WARN


def test_a_severity_is_not_ordered_against_a_string() -> None:
    with pytest.raises(TypeError, match="Severity cannot be ordered against 'error'"):
        assert Severity.INFO < "error"


def test_a_custom_policy_has_a_default_for_what_it_does_not_name() -> None:
    policy = GatingPolicy.custom({"critical": "fail_run"}, default="warn", name="house")
    assert (policy.name, actions(policy)) == ("house", "warn warn warn fail_run")


def test_a_custom_policy_without_a_default_does_what_standard_does() -> None:
    policy = GatingPolicy.custom({Severity.ERROR: GatingAction.QUARANTINE})
    assert actions(policy) == "continue warn quarantine fail_task"


@pytest.mark.parametrize(
    ("given", "default", "says"),
    [
        ({"eror": "warn"}, None, "a severity is 'eror'; did you mean 'error'?"),
        ({"error": "quarantin"}, None, "error is 'quarantin'; did you mean 'quarantine'?"),
        ({"error": None}, None, "error is None; use one of continue, warn,"),
        ({}, "explode", "info is 'explode'; use one of"),
    ],
)
def test_a_wrong_custom_policy_is_refused_with_a_sentence(
    given: Any, default: str | None, says: str
) -> None:
    with pytest.raises(Invalid) as refused:
        GatingPolicy.custom(given, default=default)
    assert says in str(refused.value)


def test_a_custom_policy_does_not_take_the_name_of_a_preset() -> None:
    with pytest.raises(Invalid, match="'strict' is one of Servo's own"):
        GatingPolicy.custom({}, name="strict")


@pytest.mark.parametrize("severity", Severity)
@pytest.mark.parametrize("outcome", [CheckOutcome.PASSED, CheckOutcome.SKIPPED])
@pytest.mark.parametrize("action", GatingAction)
def test_a_check_that_passed_or_was_not_run_continues_under_any_policy(
    severity: Severity, outcome: CheckOutcome, action: GatingAction
) -> None:
    policy = GatingPolicy.custom({}, default=action)
    result = CheckResult(check_name="c", outcome=outcome, severity=severity)
    assert decide(policy, [result]).action is GatingAction.CONTINUE


def test_a_check_that_could_not_be_evaluated_is_gated_like_a_failure() -> None:
    errored = CheckResult(check_name="c", outcome=CheckOutcome.ERRORED, severity=Severity.CRITICAL)
    decision = decide(DEFAULT_GATING, [errored])
    assert decision.action is GatingAction.FAIL_TASK
    assert "could not be evaluated" in decision.checks[0].reason


def test_the_strictest_check_decides_and_each_keeps_its_own_action() -> None:
    decision = decide(
        DEFAULT_GATING,
        [
            failed(Severity.WARNING, "a"),
            failed(Severity.CRITICAL, "b"),
            failed(Severity.ERROR, "c"),
        ],
    )
    assert decision.action is GatingAction.FAIL_TASK
    assert [(check.check_name, check.action) for check in decision.checks] == [
        ("a", GatingAction.WARN),
        ("b", GatingAction.FAIL_TASK),
        ("c", GatingAction.BLOCK_DOWNSTREAM),
    ]


def test_without_checks_the_run_goes_on() -> None:
    assert decide(DEFAULT_GATING, []).action is GatingAction.CONTINUE


@pytest.mark.parametrize("action", GatingAction)
def test_a_gate_says_in_a_sentence_which_check_did_what(action: GatingAction) -> None:
    policy = GatingPolicy.custom({}, default=action, name="house")
    (check,) = decide(policy, [failed(Severity.ERROR, "row_count")]).checks
    assert check.reason.startswith(
        "Check 'row_count' failed; at severity error the gating policy 'house' "
    )
    assert check.reason.endswith(".")


def test_a_policy_is_read_from_json_by_its_spelled_actions() -> None:
    text = b'{"name":"house","error":"quarantine","added_later":true}'
    policy = msgspec.json.decode(text, type=GatingPolicy)
    assert policy == GatingPolicy(name="house", error=GatingAction.QUARANTINE)
