"""What may be written where."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from servo.core.paths import MAX_PATH, check_path, check_prefix, workspace_prefix
from servo.errors import Invalid
from tests.contract.objects import BAD_PATHS, BAD_PREFIXES

GOOD = ["a", "A/b.c", "tables/runs/x=1", "_hint", "-", "=", "a..b/c.", "0/0", "a" * 200]


@pytest.mark.parametrize("path", GOOD)
def test_path_is_given_back_as_it_is(path: str) -> None:
    assert check_path(path) == path
    assert check_prefix(path) == path


@pytest.mark.parametrize("path", BAD_PATHS, ids=ascii)
def test_path_that_could_leave_hide_or_mean_two_things_is_refused(path: str) -> None:
    with pytest.raises(Invalid, match="is not a path inside a workspace; write it like") as refusal:
        check_path(path)
    assert str(refusal.value).isprintable()


@pytest.mark.parametrize("prefix", ["", "a/", "a/b", "a/b/"])
def test_beginning_of_a_path_is_a_prefix(prefix: str) -> None:
    assert check_prefix(prefix) == prefix


@pytest.mark.parametrize("prefix", BAD_PREFIXES, ids=ascii)
def test_prefix_that_no_path_begins_with_is_refused(prefix: str) -> None:
    with pytest.raises(Invalid, match="is not the beginning of a path"):
        check_prefix(prefix)


def test_path_has_a_longest_length() -> None:
    longest = "/".join(["a" * 99] * 9)
    assert len(longest) == MAX_PATH - 1
    check_path(longest + "a")
    with pytest.raises(Invalid):
        check_path(longest + "aa")


@given(st.text(alphabet="a.b/=-_ \n\\\0é", max_size=12))
def test_any_path_that_is_taken_has_only_plain_parts(path: str) -> None:
    try:
        check_path(path)
    except Invalid:
        return
    assert all(re.fullmatch(r"[A-Za-z0-9_=-][A-Za-z0-9._=-]*", part) for part in path.split("/"))


@given(st.text(alphabet="a.b/=-_", max_size=12), st.integers(0, 12))
def test_every_beginning_of_a_path_is_a_prefix(path: str, end: int) -> None:
    try:
        check_path(path)
    except Invalid:
        return
    check_prefix(path[:end])


def test_workspace_has_a_folder_of_its_own() -> None:
    assert workspace_prefix("acme", "main-2_b") == "acme/main-2_b"


@pytest.mark.parametrize(
    "name", ["", ".", "..", "A", "a/b", "-a", "_a", "a b", "a" * 64, "é", "a\n"]
)
def test_name_that_is_no_name_of_a_workspace_is_refused(name: str) -> None:
    with pytest.raises(Invalid, match="is not the name of a tenant; use lower-case"):
        workspace_prefix(name, "main")
    with pytest.raises(Invalid, match="is not the name of a workspace; use lower-case"):
        workspace_prefix("acme", name)
