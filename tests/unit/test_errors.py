"""Errors and the machine behind the adapters: small things that everything else leans on."""

from datetime import UTC, datetime, timedelta

import pytest

from servo import wiring
from servo.adapters import system
from servo.errors import Invalid, ServoError, did_you_mean


def test_a_close_name_is_offered() -> None:
    assert did_you_mean("ordrs", ["orders", "customers"]) == "; did you mean 'orders'?"


def test_nothing_is_offered_that_is_not_close() -> None:
    assert did_you_mean("xyz", ["orders", "customers"]) == ""
    assert did_you_mean("", []) == ""


def test_what_is_offered_does_not_depend_on_the_order_of_names() -> None:
    assert did_you_mean("ordr", {"orda", "ordb"}) == did_you_mean("ordr", ["ordb", "orda"])


def test_invalid_is_an_error_of_servo_with_a_place_if_there_is_one() -> None:
    with pytest.raises(ServoError, match="wrong") as caught:
        raise Invalid("wrong", position=3)
    assert isinstance(caught.value, Invalid) and caught.value.position == 3
    assert Invalid("wrong").position is None


def test_the_clock_is_in_utc() -> None:
    assert wiring.now().tzinfo is UTC
    assert abs(wiring.now() - datetime.now(UTC)) < timedelta(minutes=1)


def test_the_environment_is_that_of_the_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SERVO_TEST_ONLY", "yes")
    assert wiring.environment()["SERVO_TEST_ONLY"] == "yes"


def test_ulids_of_a_process_only_go_up() -> None:
    source = system.ulid_source()
    made = [source() for _ in range(1000)]
    assert made == sorted(set(made))
