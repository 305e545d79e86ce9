"""ULIDs and derived ids. The suite of ULID cases from outside is run by tests/outside."""

from collections.abc import Iterable

import pytest

from servo.core import ids
from servo.core.ids import UlidSource, parse_ulid
from servo.errors import Invalid

LAST = "7ZZZZZZZZZZZZZZZZZZZZZZZZZ"


def source(times: Iterable[int], *randomness: int) -> UlidSource:
    """Reads these times, and these random numbers (then always 7)."""
    clock, random = iter(times), iter(randomness)
    return UlidSource(lambda: next(clock), lambda bits: next(random, 7))


# ---------------------------------------------------------------- reading and writing


def test_ulid_is_ten_characters_of_time_and_sixteen_of_randomness() -> None:
    assert ids.make_ulid(1_469_918_176_385, 0) == "01ARYZ6S41" + "0" * 16


def test_largest_ulid() -> None:
    assert ids.make_ulid(2**48 - 1, 2**80 - 1) == LAST


def test_lower_case_is_read_as_upper_case() -> None:
    assert parse_ulid("01aryz6s41tsv4rrffq69g5fav") == "01ARYZ6S41TSV4RRFFQ69G5FAV"


def test_time_of_a_ulid() -> None:
    assert ids.ulid_milliseconds("01ARYZ6S41TSV4RRFFQ69G5FAV") == 1_469_918_176_385


def test_bytes_of_the_largest_ulid() -> None:
    assert ids.ulid_bytes(LAST) == b"\xff" * 16


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0" * 25,
        "0" * 27,
        "8" + "0" * 25,
        "Z" * 26,
        *(letter + "0" * 25 for letter in "ILOUilou"),
        "0" * 25 + "\n",
        " " + "0" * 25,
        "0" * 25 + "-",
        "0" * 25 + "é",
        "0" * 25 + "\u0661",  # an Arabic digit
        "0" * 25 + "\uff11",  # a wide one
        "0" * 25 + "\u0131",  # a dotless i, whose upper case is I
        "0" * 25 + "\ud800",
    ],
    ids=ascii,
)
def test_text_is_no_ulid(text: str) -> None:
    with pytest.raises(Invalid, match="is not") as refusal:
        parse_ulid(text)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("thing", [None, 5, b"0" * 26, ["0"] * 26])
def test_ulid_of_another_type_is_refused(thing: object) -> None:
    with pytest.raises(Invalid, match="a ULID is a string of 26 characters"):
        parse_ulid(thing)  # type: ignore[arg-type]


def test_wrong_character_is_pointed_at() -> None:
    with pytest.raises(Invalid) as refusal:
        parse_ulid("0000U" + "0" * 21)
    assert refusal.value.position == 4


@pytest.mark.parametrize("time", [-1, 2**48, 10**5000], ids=int.bit_length)
def test_time_that_a_ulid_cannot_hold_is_refused(time: int) -> None:
    with pytest.raises(Invalid, match="outside the times a ULID can hold"):
        ids.encode_time(time)


@pytest.mark.parametrize("value", [-1, 32**4, 10**5000], ids=int.bit_length)
def test_number_that_does_not_fit_is_refused(value: int) -> None:
    with pytest.raises(Invalid, match="does not fit into 4 base-32 characters"):
        ids.base32_encode(value, 4)


def test_increment_carries_over() -> None:
    assert ids.increment_ulid("0" * 10 + "0" * 14 + "0Z") == "0" * 10 + "0" * 14 + "10"


def test_increment_never_touches_the_time() -> None:
    with pytest.raises(Invalid):
        ids.increment_ulid("0" * 10 + "Z" * 16)


# ---------------------------------------------------------------- the source


def test_new_millisecond_takes_new_randomness() -> None:
    make = source([1, 2], 500, 3)
    assert [make(), make()] == [ids.make_ulid(1, 500), ids.make_ulid(2, 3)]


def test_same_millisecond_increments() -> None:
    make = source([1, 1, 1], 500, 3)
    assert [make(), make(), make()] == [ids.make_ulid(1, 500 + i) for i in range(3)]


def test_clock_that_goes_back_increments_the_last_id() -> None:
    make = source([100, 5, 99, 101], 500, 3)
    made = [make() for _ in range(4)]
    assert made == [*(ids.make_ulid(100, 500 + i) for i in range(3)), ids.make_ulid(101, 3)]


def test_used_up_randomness_borrows_the_next_millisecond() -> None:
    make = source([1, 1, 2, 3], 2**80 - 1, 4, 9)
    made = [make() for _ in range(4)]
    assert made == [
        ids.make_ulid(1, 2**80 - 1),
        ids.make_ulid(2, 4),
        ids.make_ulid(2, 5),
        ids.make_ulid(3, 9),
    ]


def test_time_zero_is_a_time() -> None:
    assert source([0], 1)() == ids.make_ulid(0, 1)


def test_end_of_time_is_refused_and_not_wrapped_around() -> None:
    make = source([2**48 - 1, 2**48 - 1], 2**80 - 1)
    make()
    with pytest.raises(Invalid, match="outside the times"):
        make()


@pytest.mark.parametrize("wrong", [2**48, 10**30, -5])
def test_source_recovers_from_a_clock_that_was_wrong_once(wrong: int) -> None:
    make = source([wrong, 10, 11])
    with pytest.raises(Invalid, match="outside the times"):
        make()
    assert [make(), make()] == [ids.make_ulid(10, 7), ids.make_ulid(11, 7)]


def test_source_goes_on_growing_after_a_clock_ran_into_the_far_future() -> None:
    make = source([10, 2**48, 10])
    first = make()
    with pytest.raises(Invalid):
        make()
    assert make() == ids.increment_ulid(first)


# ---------------------------------------------------------------- derived ids


def test_queue_id_of_a_broken_text_is_refused() -> None:
    with pytest.raises(Invalid, match="lone surrogate"):
        ids.queue_id("d", "\ud800")
