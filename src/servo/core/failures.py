"""Why an attempt failed: categories, codes, and what each calls for.

    code      one way of failing, for programs: OUT_OF_MEMORY (upper case)
    category  what kind of thing it is, and so who can do something about it: infrastructure (lower
              case)
    failure   one attempt's failure: a code, a sentence, and the names of the exception's classes

`CODES` is the one table: a code's category, whether it is retried unless the user says otherwise,
what Servo does about it, and the next step for a person. Codes and categories are spelled
differently, and neither looks like an exception class, so `retry_on` can hold all three.

A failure is part of a fact, and facts hold no user data. The text of an exception often quotes the
cell it choked on, so it never enters `TaskFailure.message`: `exception_failure` writes a sentence
from class names and a place in the code, and the full traceback lies beside the attempt,
referenced by hash.
"""

import enum
import errno as errnos
from collections.abc import Sequence
from typing import NamedTuple, Self

import msgspec

from servo.errors import Invalid


class FailureCategory(enum.StrEnum):
    """Who can do something about it."""

    TRANSIENT = "transient"
    """Something outside did not answer this time."""
    INFRASTRUCTURE = "infrastructure"
    """The machine or the worker gave up; the code may be fine."""
    TIMEOUT = "timeout"
    """The task took longer than it was allowed to."""
    USER_CODE = "user_code"
    """The asset's own code, or a check on what it made."""
    INPUT = "input"
    """What the task was given to read."""
    CONFIGURATION = "configuration"
    """What was declared, deployed or permitted."""
    SYSTEM = "system"
    """Servo itself."""
    CANCELLED = "cancelled"
    """Somebody wanted it to stop."""
    INTERRUPTED = "interrupted"
    """The platform took the worker away (SIGTERM); nothing went wrong."""


class FailureAction(enum.StrEnum):
    """What Servo does about a failure when neither the user's policy nor an upper limit decides."""

    RETRY = "retry"
    RETRY_AND_ALERT = "retry_and_alert"
    """Worth another attempt, and worth somebody's attention even if that one succeeds."""
    FAIL_TASK = "fail_task"
    FAIL_TASK_AND_ALERT = "fail_task_and_alert"
    REFUSE = "refuse"
    """Refuse the deployment or the plan; if it surfaces only in a task, the task fails."""
    CANCEL = "cancel"
    RUN_AGAIN = "run_again"
    """At once, and without costing an attempt."""


class FailureCode(enum.StrEnum):
    """One way of failing. `CODES` says what each means."""

    NETWORK_ERROR = "NETWORK_ERROR"
    RATE_LIMITED = "RATE_LIMITED"
    SERVICE_UNAVAILABLE = "SERVICE_UNAVAILABLE"
    CALL_TIMEOUT = "CALL_TIMEOUT"

    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    DISK_FULL = "DISK_FULL"
    WORKER_CRASH = "WORKER_CRASH"
    HEARTBEAT_TIMEOUT = "HEARTBEAT_TIMEOUT"
    DISPATCH_ACK_TIMEOUT = "DISPATCH_ACK_TIMEOUT"

    EXECUTION_TIMEOUT = "EXECUTION_TIMEOUT"

    USER_CODE_EXCEPTION = "USER_CODE_EXCEPTION"
    IMPORT_ERROR = "IMPORT_ERROR"
    CHECK_FAILED = "CHECK_FAILED"

    MISSING_INPUT = "MISSING_INPUT"
    SCHEMA_VIOLATION = "SCHEMA_VIOLATION"
    DATA_CORRUPTION = "DATA_CORRUPTION"

    INVALID_MANIFEST = "INVALID_MANIFEST"
    INVALID_PARTITION = "INVALID_PARTITION"
    CYCLE_DETECTED = "CYCLE_DETECTED"
    MISSING_SECRET = "MISSING_SECRET"
    PERMISSION_DENIED = "PERMISSION_DENIED"

    INTERNAL_ERROR = "INTERNAL_ERROR"
    NOT_IMPLEMENTED = "NOT_IMPLEMENTED"

    CANCELLED = "CANCELLED"
    INTERRUPTED = "INTERRUPTED"

    @property
    def row(self) -> "CodeRow":
        return CODES[self]


class CodeRow(NamedTuple):
    """One row of `CODES`."""

    category: FailureCategory
    retriable: bool
    """Whether another attempt is made when no `retry_on` or `no_retry_on` speaks about it."""
    action: FailureAction
    next_step: str
    """One sentence for the person who has to do something."""


_C, _A = FailureCategory, FailureAction

# Infrastructure is retried although the first design said "maybe": memory and disk are shared with
# whatever else ran on the machine, and the next attempt often finds more room. The alert is for when it
# does not. A bug of ours is not retried: it would do the same thing again.
CODES: dict[FailureCode, CodeRow] = {
    FailureCode.NETWORK_ERROR: CodeRow(
        _C.TRANSIENT,
        True,
        _A.RETRY,
        "Check that the service the task talks to can be reached from where the worker runs.",
    ),
    FailureCode.RATE_LIMITED: CodeRow(
        _C.TRANSIENT,
        True,
        _A.RETRY,
        "Run fewer of these tasks at once (--concurrency); the task is tried again by itself.",
    ),
    FailureCode.SERVICE_UNAVAILABLE: CodeRow(
        _C.TRANSIENT,
        True,
        _A.RETRY,
        "Look at the status of the service the task talks to; the task is tried again by itself.",
    ),
    FailureCode.CALL_TIMEOUT: CodeRow(
        _C.TRANSIENT,
        True,
        _A.RETRY,
        "Find out which call did not answer in time, and give it longer or ask it for less.",
    ),
    FailureCode.OUT_OF_MEMORY: CodeRow(
        _C.INFRASTRUCTURE,
        True,
        _A.RETRY_AND_ALERT,
        "Work in batches or smaller partitions, run fewer tasks at once, or use a larger machine.",
    ),
    FailureCode.DISK_FULL: CodeRow(
        _C.INFRASTRUCTURE,
        True,
        _A.RETRY_AND_ALERT,
        "Free space where the worker writes, or point it at a larger disk.",
    ),
    FailureCode.WORKER_CRASH: CodeRow(
        _C.INFRASTRUCTURE,
        True,
        _A.RETRY_AND_ALERT,
        "Find out what ended the process: memory that ran out (signal 9), os._exit, or a crash of"
        " native code.",
    ),
    FailureCode.HEARTBEAT_TIMEOUT: CodeRow(
        _C.INFRASTRUCTURE,
        True,
        _A.RETRY_AND_ALERT,
        "Look whether the worker died, hangs, is stopped or lost its network.",
    ),
    FailureCode.DISPATCH_ACK_TIMEOUT: CodeRow(
        _C.INFRASTRUCTURE,
        True,
        _A.RETRY_AND_ALERT,
        "Check that workers are up and can take tasks.",
    ),
    FailureCode.EXECUTION_TIMEOUT: CodeRow(
        _C.TIMEOUT,
        True,
        _A.RETRY,
        "Give the task less to do, in smaller partitions for example.",
    ),
    FailureCode.USER_CODE_EXCEPTION: CodeRow(
        _C.USER_CODE,
        False,
        _A.FAIL_TASK,
        "Read the traceback and fix the asset's code, then run it again.",
    ),
    FailureCode.IMPORT_ERROR: CodeRow(
        _C.USER_CODE,
        False,
        _A.FAIL_TASK,
        "Install the missing package where the worker runs, or correct the import.",
    ),
    FailureCode.CHECK_FAILED: CodeRow(
        _C.USER_CODE,
        False,
        _A.FAIL_TASK,
        "Look at the check's result, then correct the data, the code or the check.",
    ),
    FailureCode.MISSING_INPUT: CodeRow(
        _C.INPUT,
        False,
        _A.FAIL_TASK,
        "Materialize the missing upstream partition first, or select it in the same run.",
    ),
    FailureCode.SCHEMA_VIOLATION: CodeRow(
        _C.INPUT,
        False,
        _A.FAIL_TASK,
        "Compare the input's columns with those the asset declares, and correct one of them.",
    ),
    FailureCode.DATA_CORRUPTION: CodeRow(
        _C.INPUT,
        False,
        _A.FAIL_TASK_AND_ALERT,
        "Do not use the version that was read; materialize it again or roll back to an older one.",
    ),
    FailureCode.INVALID_MANIFEST: CodeRow(
        _C.CONFIGURATION,
        False,
        _A.REFUSE,
        "Correct the definition that the message names, and deploy again.",
    ),
    FailureCode.INVALID_PARTITION: CodeRow(
        _C.CONFIGURATION,
        False,
        _A.REFUSE,
        "Use a partition that the asset's partitioning holds.",
    ),
    FailureCode.CYCLE_DETECTED: CodeRow(
        _C.CONFIGURATION,
        False,
        _A.REFUSE,
        "Remove one of the dependencies on the path that the message shows.",
    ),
    FailureCode.MISSING_SECRET: CodeRow(
        _C.CONFIGURATION,
        False,
        _A.FAIL_TASK,
        "Add the secret to the store that the worker reads, or correct its name.",
    ),
    FailureCode.PERMISSION_DENIED: CodeRow(
        _C.CONFIGURATION,
        False,
        _A.FAIL_TASK,
        "Give the worker's identity access to what the task reads or writes.",
    ),
    FailureCode.INTERNAL_ERROR: CodeRow(
        _C.SYSTEM,
        False,
        _A.FAIL_TASK_AND_ALERT,
        "This is a fault of Servo: report it with the run's id and the traceback.",
    ),
    FailureCode.NOT_IMPLEMENTED: CodeRow(
        _C.SYSTEM,
        False,
        _A.FAIL_TASK,
        "Servo cannot do this yet: use another way, or another version of Servo.",
    ),
    FailureCode.CANCELLED: CodeRow(
        _C.CANCELLED,
        False,
        _A.CANCEL,
        "Nothing to do; start a new run if the result is still wanted.",
    ),
    FailureCode.INTERRUPTED: CodeRow(
        _C.INTERRUPTED,
        True,
        _A.RUN_AGAIN,
        "Nothing to do; the task runs again and the interruption does not count as an attempt.",
    ),
}

MAX_MESSAGE = 2_000
"""Characters in a failure's message. A sentence of ours is shorter; a pasted dump is longer."""

_DETAIL_TYPES = (str, int, bool)


class TaskFailure(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=False):
    """One attempt's failure, as the fact that reports it carries it. Holds no user data.

    `message` is a sentence of Servo's own: it may name assets, partitions, columns, counts, files
    and lines, and never a cell's value or an exception's own text. `exception_types` are the names
    of the exception's classes, most specific first (see `exception_type_names`), which is how a
    policy recognises subclasses without having them. `traceback_object` is the hash under which the
    full traceback lies beside the attempt. `details` are counts, codes and names (`exit_code`,
    `column`); treat it as frozen.
    """

    code: FailureCode
    message: str
    exception_types: tuple[str, ...] = ()
    traceback_object: str | None = None
    details: dict[str, str | int | bool] = {}

    def __post_init__(self) -> None:
        if not self.message.strip():
            raise Invalid(
                f"failure {self.code}: the message is empty; say in a sentence what failed"
            )
        if len(self.message) > MAX_MESSAGE:
            raise Invalid(
                f"failure {self.code}: the message has {len(self.message)} characters, more than"
                f" {MAX_MESSAGE}; keep the sentence and put the rest into the traceback object"
            )
        for name, value in self.details.items():
            if type(value) not in _DETAIL_TYPES:
                raise Invalid(
                    f"failure {self.code}: detail {name!r} is a {type(value).__name__};"
                    " use a string, an integer or a boolean"
                )
            if type(value) is int and not -(2**63) <= value < 2**63:
                raise Invalid(f"failure {self.code}: detail {name!r} is an integer beyond 64 bits")

    @property
    def category(self) -> FailureCategory:
        return self.code.row.category

    @property
    def next_step(self) -> str:
        return self.code.row.next_step

    @classmethod
    def of_exception(
        cls,
        exception_types: Sequence[str],
        *,
        errno: int | None = None,
        where: str = "",
        traceback_object: str | None = None,
    ) -> Self:
        """The failure of an exception, from its class names and a place such as `orders.py:41`.

        The exception's own text is left out on purpose: it may quote data.
        """
        names = tuple(exception_types)
        if not names:
            raise Invalid("a failure of an exception needs the names of the exception's classes")
        place = f" at {where}" if where else ""
        return cls(
            code=classify(names, errno=errno),
            message=f"{names[0]} was raised{place}"
            + ("; its text is in the traceback." if traceback_object else "."),
            exception_types=names,
            traceback_object=traceback_object,
            details={} if errno is None else {"errno": errno},
        )


def exception_type_names(exception: type[BaseException]) -> tuple[str, ...]:
    """The names of a class and its bases in method resolution order, without `object`.

    Built-in classes go by their bare name (`ValueError`), others by module and qualified name
    (`mymod.MyError`): how `TaskFailure.exception_types` spells them.
    """
    return tuple(
        base.__qualname__
        if base.__module__ == "builtins"
        else f"{base.__module__}.{base.__qualname__}"
        for base in exception.__mro__
        if base is not object
    )


# Only what says by its type alone what went wrong. FileNotFoundError, KeyError or
# NotImplementedError may be anything in user code, and stay USER_CODE_EXCEPTION. The classes of
# HTTP clients are here because they do not derive from the built-in ones.
_BY_TYPE: dict[str, FailureCode] = {
    "MemoryError": FailureCode.OUT_OF_MEMORY,
    "ConnectionError": FailureCode.NETWORK_ERROR,
    "TimeoutError": FailureCode.CALL_TIMEOUT,
    "ImportError": FailureCode.IMPORT_ERROR,
    "PermissionError": FailureCode.PERMISSION_DENIED,
    "socket.gaierror": FailureCode.NETWORK_ERROR,
    "requests.exceptions.ConnectionError": FailureCode.NETWORK_ERROR,
    "requests.exceptions.Timeout": FailureCode.CALL_TIMEOUT,
    "httpx.NetworkError": FailureCode.NETWORK_ERROR,
    "httpx.TimeoutException": FailureCode.CALL_TIMEOUT,
}

_BY_ERRNO: dict[int, FailureCode] = {
    errnos.ENOSPC: FailureCode.DISK_FULL,
    errnos.EDQUOT: FailureCode.DISK_FULL,
    errnos.ENOMEM: FailureCode.OUT_OF_MEMORY,
    errnos.ENETDOWN: FailureCode.NETWORK_ERROR,
    errnos.ENETUNREACH: FailureCode.NETWORK_ERROR,
    errnos.EHOSTUNREACH: FailureCode.NETWORK_ERROR,
}


def classify(exception_types: Sequence[str], *, errno: int | None = None) -> FailureCode:
    """The code for an exception, from the names of its classes, most specific first.

    The first known class decides; `errno` (the worker's own, read where it was raised) decides for
    an `OSError` that no class explains; everything else is USER_CODE_EXCEPTION.
    """
    for name in exception_types:
        if (code := _BY_TYPE.get(name)) is not None:
            return code
    if errno is not None and "OSError" in exception_types:
        return _BY_ERRNO.get(errno, FailureCode.USER_CODE_EXCEPTION)
    return FailureCode.USER_CODE_EXCEPTION
