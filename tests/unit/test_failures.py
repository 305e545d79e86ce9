"""The table of failure codes, and how exceptions find theirs."""

import errno

import msgspec
import pytest

from servo.core.failures import (
    CODES,
    MAX_MESSAGE,
    FailureAction,
    FailureCategory,
    FailureCode,
    TaskFailure,
    classify,
    exception_type_names,
)
from servo.errors import Invalid


class MyError(ValueError):
    pass


def names(exception: type[BaseException]) -> tuple[str, ...]:
    return exception_type_names(exception)


def test_every_code_has_a_row_and_every_row_a_code() -> None:
    assert list(CODES) == list(FailureCode)


@pytest.mark.parametrize("code", FailureCode)
def test_every_code_says_the_next_step_in_one_sentence(code: FailureCode) -> None:
    step = code.row.next_step
    assert step[0].isupper()
    assert step.endswith(".")
    assert ". " not in step


def test_every_category_and_every_action_is_used() -> None:
    assert {row.category for row in CODES.values()} == set(FailureCategory)
    assert {row.action for row in CODES.values()} == set(FailureAction)


@pytest.mark.parametrize("code", FailureCode)
def test_a_code_is_retriable_exactly_when_its_action_tries_again(code: FailureCode) -> None:
    tries_again = {FailureAction.RETRY, FailureAction.RETRY_AND_ALERT, FailureAction.RUN_AGAIN}
    assert code.row.retriable == (code.row.action in tries_again)


def test_codes_and_categories_are_never_spelled_alike() -> None:
    assert all(code.value.isupper() for code in FailureCode)
    assert all(category.value.islower() for category in FailureCategory)


@pytest.mark.parametrize(
    ("category", "retriable"),
    [
        (FailureCategory.TRANSIENT, True),
        (FailureCategory.INFRASTRUCTURE, True),
        (FailureCategory.TIMEOUT, True),
        (FailureCategory.USER_CODE, False),
        (FailureCategory.INPUT, False),
        (FailureCategory.CONFIGURATION, False),
        (FailureCategory.SYSTEM, False),
        (FailureCategory.CANCELLED, False),
        (FailureCategory.INTERRUPTED, True),
    ],
)
def test_all_codes_of_a_category_are_retried_alike(
    category: FailureCategory, retriable: bool
) -> None:
    assert {r.retriable for r in CODES.values() if r.category is category} == {retriable}


# --- Exceptions -----------------------------------------------------------------------------------


def test_builtin_classes_go_by_their_bare_name_and_others_by_their_module() -> None:
    assert names(MyError) == (f"{__name__}.MyError", "ValueError", "Exception", "BaseException")


@pytest.mark.parametrize(
    ("exception", "code"),
    [
        (MemoryError, FailureCode.OUT_OF_MEMORY),
        (ConnectionError, FailureCode.NETWORK_ERROR),
        (ConnectionResetError, FailureCode.NETWORK_ERROR),
        (TimeoutError, FailureCode.CALL_TIMEOUT),
        (ImportError, FailureCode.IMPORT_ERROR),
        (ModuleNotFoundError, FailureCode.IMPORT_ERROR),
        (PermissionError, FailureCode.PERMISSION_DENIED),
        (ValueError, FailureCode.USER_CODE_EXCEPTION),
        (MyError, FailureCode.USER_CODE_EXCEPTION),
        (FileNotFoundError, FailureCode.USER_CODE_EXCEPTION),
        (NotImplementedError, FailureCode.USER_CODE_EXCEPTION),
    ],
)
def test_an_exception_is_classified_by_its_class(
    exception: type[BaseException], code: FailureCode
) -> None:
    assert classify(names(exception)) is code


def test_http_clients_are_known_although_they_do_not_derive_from_builtin_errors() -> None:
    assert (
        classify(["requests.exceptions.ReadTimeout", "requests.exceptions.Timeout", "OSError"])
        is FailureCode.CALL_TIMEOUT
    )
    assert classify(["httpx.ConnectError", "httpx.NetworkError"]) is FailureCode.NETWORK_ERROR


@pytest.mark.parametrize(
    ("number", "code"),
    [
        (errno.ENOSPC, FailureCode.DISK_FULL),
        (errno.EDQUOT, FailureCode.DISK_FULL),
        (errno.ENOMEM, FailureCode.OUT_OF_MEMORY),
        (errno.EHOSTUNREACH, FailureCode.NETWORK_ERROR),
        (errno.ENOTDIR, FailureCode.USER_CODE_EXCEPTION),
    ],
)
def test_an_os_error_is_classified_by_its_number(number: int, code: FailureCode) -> None:
    assert classify(names(OSError), errno=number) is code


def test_the_number_of_what_is_no_os_error_means_nothing() -> None:
    assert classify(names(ValueError), errno=errno.ENOSPC) is FailureCode.USER_CODE_EXCEPTION


def test_a_class_outweighs_the_number() -> None:
    assert classify(names(ConnectionError), errno=errno.ENOSPC) is FailureCode.NETWORK_ERROR


def test_an_exception_without_names_is_user_code() -> None:
    assert classify([]) is FailureCode.USER_CODE_EXCEPTION


# --- Failures -------------------------------------------------------------------------------------


def test_the_failure_of_an_exception_says_where_and_not_what_the_exception_said() -> None:
    failure = TaskFailure.of_exception(
        names(MyError), where="orders.py:41", traceback_object="sha256:00"
    )
    assert failure.code is FailureCode.USER_CODE_EXCEPTION
    assert failure.message == (
        f"{__name__}.MyError was raised at orders.py:41; its text is in the traceback."
    )
    assert failure.traceback_object == "sha256:00"


def test_a_failure_without_a_kept_traceback_promises_none() -> None:
    failure = TaskFailure.of_exception(names(MyError), where="orders.py:41")
    assert failure.message == f"{__name__}.MyError was raised at orders.py:41."


def test_a_failure_keeps_the_error_number_as_a_detail() -> None:
    failure = TaskFailure.of_exception(names(OSError), errno=errno.ENOSPC)
    assert failure.code is FailureCode.DISK_FULL
    assert failure.details == {"errno": errno.ENOSPC}


def test_a_failure_of_an_exception_needs_a_class() -> None:
    with pytest.raises(Invalid, match="needs the names"):
        TaskFailure.of_exception([])


def test_a_failure_knows_its_category_and_next_step() -> None:
    failure = TaskFailure(code=FailureCode.DISK_FULL, message="No space is left.")
    assert failure.category is FailureCategory.INFRASTRUCTURE
    assert failure.next_step == CODES[FailureCode.DISK_FULL].next_step


def test_an_empty_message_is_refused() -> None:
    with pytest.raises(Invalid, match="failure DISK_FULL: the message is empty"):
        TaskFailure(code=FailureCode.DISK_FULL, message=" ")


def test_a_message_as_long_as_a_dump_is_refused() -> None:
    with pytest.raises(Invalid, match="put the rest into the traceback object"):
        TaskFailure(code=FailureCode.DISK_FULL, message="x" * (MAX_MESSAGE + 1))


def test_a_float_among_the_details_is_refused() -> None:
    with pytest.raises(Invalid, match="detail 'ratio' is a float"):
        TaskFailure(code=FailureCode.CHECK_FAILED, message="No.", details={"ratio": 0.5})  # type: ignore[dict-item]  # the wrong type is the point


def test_fields_of_a_newer_version_are_passed_over() -> None:
    text = b'{"code":"INTERRUPTED","message":"Stopped.","added_later":[1]}'
    failure = msgspec.json.decode(text, type=TaskFailure)
    assert failure == TaskFailure(code=FailureCode.INTERRUPTED, message="Stopped.")
