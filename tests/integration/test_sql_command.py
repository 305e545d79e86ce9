"""`servo sql`: the tables, for people and for programs."""

import json
import subprocess
from pathlib import Path

import pytest

from servo.fold.tables import TABLES
from tests.integration.command import SERVO, environment, refused
from tests.integration.workplace import FAILS, GOOD, Workplace

QUERY = "select asset_key, state, attempt from tasks order by 1"


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Workplace:
    place = Workplace(tmp_path_factory.mktemp("project"), FAILS)
    assert place.servo("run", "-q").returncode == 1
    return place


def test_the_answer_is_a_table(place: Workplace) -> None:
    done = place.servo("sql", QUERY)
    assert (done.returncode, done.stderr) == (0, "")
    assert (
        done.stdout
        == """\
asset_key          state      attempt
default/customers  SUCCEEDED        1
default/orders     FAILED           1
default/revenue    SKIPPED          0
"""
    )


def test_the_answer_can_be_csv(place: Workplace) -> None:
    assert place.servo("sql", QUERY, "-o", "csv").stdout.splitlines()[:2] == [
        "asset_key,state,attempt",
        "default/customers,SUCCEEDED,1",
    ]


def test_the_answer_can_be_json(place: Workplace) -> None:
    [first, *_] = json.loads(place.servo("sql", QUERY, "-o", "json").stdout)
    assert first == {"asset_key": "default/customers", "state": "SUCCEEDED", "attempt": 1}


def test_values_of_every_kind_can_be_printed(place: Workplace) -> None:
    query = (
        "select null a, true b, 1.5 c, date '2024-01-31' d, timestamptz '2024-01-31T06:00:00Z' e,"
        " [1, 2] f, {'x': 1} g, interval 1 day h, '\x1b[2J' i, 2::decimal(9,2) j"
    )
    done = place.servo("sql", query)
    assert done.stdout.splitlines()[1].split()[:6] == [
        *("null", "true", "1.5", "2024-01-31", "2024-01-31", "06:00:00Z")
    ]
    assert "\x1b" not in done.stdout
    [row] = json.loads(place.servo("sql", query, "-o", "json").stdout)
    assert (row["a"], row["d"], row["f"], row["g"]) == (None, "2024-01-31", [1, 2], {"x": 1})
    assert place.servo("sql", query, "-o", "csv").returncode == 0


def test_the_query_can_come_from_standard_input(place: Workplace) -> None:
    done = subprocess.run(
        [str(SERVO), "sql", "-", "-o", "csv"],
        input="select 1 as one",
        cwd=place.folder,
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.stdout == "one\n1\n"


@pytest.mark.parametrize(
    ("query", "said"),
    [
        ("select * from task", "there is no table 'task'; did you mean 'tasks'?"),
        ("delete from tasks", "a query may only read"),
        ("select 1; select 2", "a query is one SELECT statement"),
        ("selec 1", "the query cannot be answered"),
        ("", "a query is one SELECT statement"),
        ("select * from read_csv('/etc/passwd')", "the query cannot be answered"),
    ],
)
def test_a_wrong_query_is_one_sentence(query: str, said: str, place: Workplace) -> None:
    message = refused(place.servo("sql", query))
    assert message.startswith(said) and "\n" not in message


@pytest.mark.parametrize(
    ("query", "hint"),
    [
        ("select stat from runs", 'Candidate bindings: "state"'),
        ("select uper('a')", 'Did you mean "upper"?'),
        ("select upper(1, 2)", "Candidate functions: upper(string VARCHAR) -> VARCHAR"),
    ],
)
def test_what_could_have_been_meant_is_told(query: str, hint: str, place: Workplace) -> None:
    message = refused(place.servo("sql", query))
    assert hint in message
    assert "\n" not in message and "LINE 1" not in message and "^" not in message


def test_no_query_is_told_about_the_tables(place: Workplace) -> None:
    assert "--tables" in refused(place.servo("sql"))


def test_tables_are_listed_with_their_columns(place: Workplace) -> None:
    done = place.servo("sql", "--tables")
    for table in TABLES:
        assert f"{table.name}  {table.about}" in done.stdout
        for column in table.columns:
            assert f"  {column.name} " in done.stdout and column.about in done.stdout


def test_tables_can_be_listed_for_programs(place: Workplace) -> None:
    listed = json.loads(place.servo("sql", "--tables", "-o", "json").stdout)
    assert {row["table"] for row in listed} == {table.name for table in TABLES}


def test_before_the_first_run_tables_are_empty(tmp_path: Path) -> None:
    done = Workplace(tmp_path, GOOD).servo("sql", "select count(*) n from runs", "-o", "csv")
    assert (done.returncode, done.stdout) == (0, "n\n0\n")
    assert done.stderr.startswith("Nothing has run here yet")
