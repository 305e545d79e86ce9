"""What can go wrong, named by what the caller must do.

    ServoError
    ├── Invalid            fix the input; trying again changes nothing
    ├── Conflict           somebody was first: look again, then try again
    ├── Fenced             somebody newer leads: stop, and touch nothing more
    ├── Unavailable        it did not happen: wait, then try again
    │   └── Uncertain      nobody knows whether it happened: read back before anything else
    └── Corrupt            stored bytes are not what was written: call for help, guess nothing

A message is for a person who did not write this code. It names the thing, says what was found and
what was expected, and ends with what to do next; it never needs a traceback beside it.
"""

from collections.abc import Iterable


class ServoError(Exception):
    """Base of every error that Servo raises on purpose; the command line prints it and nothing else."""


class Invalid(ServoError, ValueError):
    """The input is wrong: a key, a definition, a selection, a file.

    A ValueError too, so that msgspec tells the path to a part of a file that refuses itself.
    `position` is the index of the offending character where the input is a text the user typed.
    """

    def __init__(self, message: str, *, position: int | None = None) -> None:
        super().__init__(message)
        self.position = position


class Conflict(ServoError):
    """Somebody else was first. Nothing of ours happened; what is there now decides what to do."""


class Fenced(ServoError):
    """A leader with a higher epoch exists, so this one must do nothing more."""


class Unavailable(ServoError):
    """The store or the log did not answer, or has no room. It did not happen."""


class Uncertain(Unavailable):
    """The answer was lost: it may have happened, and may even happen later."""


class Corrupt(ServoError):
    """What is stored is not what was written: changed, cut short, swapped or gone."""


def did_you_mean(wrong: str, known: Iterable[str]) -> str:
    """The tail of a message about an unknown name: `; did you mean 'x'?`, or nothing."""
    # difflib costs start-up time and is needed only when something is already wrong.
    import difflib

    close = difflib.get_close_matches(wrong, sorted(known), n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else ""
