"""The envelope: lines to events and back, older and newer versions, and lines that are no events."""

import base64
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

import pytest

from servo.core.failures import FailureCode
from servo.errors import Corrupt
from servo.events.audit import AuditRecorded
from servo.events.catalog import DeploymentCreated
from servo.events.envelope import (
    Event,
    Fact,
    Unknown,
    Vocabulary,
    encode,
    microseconds,
    moment,
    place,
)
from servo.events.execution import Outcome
from servo.events.orchestration import LeaderClaimed, attempt_id, dispatch_id
from servo.events.vocabulary import VOCABULARY
from tests.unit import facts

VECTORS = Path("/work/shared/vectors/json_parsing.jsonl")

EXAMPLES: list[Fact] = [
    LeaderClaimed(epoch=1, writer_id="w"),
    facts.triggered(run_key="K"),
    facts.stopped(),
    facts.asked("a"),
    facts.reused("a"),
    facts.began("a"),
    facts.alive("a"),
    facts.finished("a", 1, Outcome.FAILED, code=FailureCode.NETWORK_ERROR, details={"n": 1}),
    facts.made("a"),
    DeploymentCreated(
        deployment_id="D", manifest_object="o", code_version="c", asset_ids={"n/a": "i"}
    ),
    AuditRecorded(action="looked", subject="s", details={"why": "ü"}),
]


def line(**changed: Any) -> bytes:
    """A line of the ledger with some of its fields changed; None takes one away."""
    fields = json.loads(encode(facts.event(facts.asked("a"), 1_500_000)))
    fields = {**fields, **changed}
    return json.dumps({name: value for name, value in fields.items() if value is not None}).encode()


def test_there_is_an_example_of_every_fact() -> None:
    assert {type(fact) for fact in EXAMPLES} == set(VOCABULARY)


@pytest.mark.parametrize("fact", EXAMPLES, ids=lambda fact: type(fact).__name__)
def test_an_event_reads_back_as_it_was_written(fact: Fact) -> None:
    event = facts.event(fact, 1_700_000_000_123_456, actor="ann", source="cli")
    assert VOCABULARY.decode(encode(event)) == event


@pytest.mark.parametrize("fact", EXAMPLES, ids=lambda fact: type(fact).__name__)
def test_two_reports_of_one_thing_have_one_idempotency_key(fact: Fact) -> None:
    assert fact.key() == type(fact)(**{n: getattr(fact, n) for n in fact.__struct_fields__}).key()
    assert ":" in fact.key()


def test_times_are_microseconds_in_utc_both_ways() -> None:
    assert moment(0) == datetime(1970, 1, 1, tzinfo=UTC)
    for at in (0, 1, -1, 1_700_000_000_123_456, -86_400_000_001):
        assert microseconds(moment(at)) == at
    read = VOCABULARY.decode(line(timestamp="2025-01-01T01:00:00+01:00"))
    assert microseconds(read.timestamp) == microseconds(datetime(2025, 1, 1, tzinfo=UTC))


def test_events_of_a_segment_are_placed_in_their_order() -> None:
    events = [facts.event(fact, 7) for fact in EXAMPLES[:3]]
    placed = place(events, 4)
    assert [(p.position, p.index, p.at) for p in placed] == [(4, 0, 7), (4, 1, 7), (4, 2, 7)]
    assert placed[1].place == (4, 1)


def test_an_event_of_the_engine_is_an_intent() -> None:
    assert facts.event(facts.asked("a")).is_intent
    assert not facts.event(facts.asked("a"), source="worker").is_intent


def test_an_attempt_has_the_same_id_wherever_it_is_computed() -> None:
    assert dispatch_id("R", "n/a:materialize", 2) == "dispatch:R:n/a:materialize:2"
    assert attempt_id("R", "n/a:materialize", 2) == "a_pzjm7hfcqz3gpro6htwrygvkib"
    assert attempt_id("R", "n/a:materialize", 1) != attempt_id("R", "n/a:materialize", 2)


# --- Other versions -------------------------------------------------------------------------------


class Moved(Fact, frozen=True, kw_only=True):
    """The third version of a fact. The first called `where` `place`, the second had no `speed`."""

    domain: ClassVar[str] = "catalog"
    version: ClassVar[int] = 3

    where: str
    speed: int

    def key(self) -> str:
        return f"moved:{self.where}"


def _renamed(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "where": data.pop("place")}


def _with_speed(data: dict[str, Any]) -> dict[str, Any]:
    return {**data, "speed": 1}


NEWER = Vocabulary([Moved], {("Moved", 1): _renamed, ("Moved", 2): _with_speed})


def moved(version: int, **payload: Any) -> bytes:
    return line(event_type="Moved", event_version=version, payload=payload)


def test_older_versions_are_brought_up_to_date_one_step_after_the_other() -> None:
    wanted = Moved(where="here", speed=1)
    assert NEWER.decode(moved(1, place="here")).payload == wanted
    assert NEWER.decode(moved(2, where="here")).payload == wanted
    assert NEWER.decode(moved(3, where="here", speed=1)).payload == wanted


def test_an_event_that_was_brought_up_to_date_says_which_version_was_written() -> None:
    assert NEWER.decode(moved(1, place="here")).event_version == 1


def test_an_older_version_without_its_fields_is_corrupt() -> None:
    for data in (moved(1, wrong="here"), moved(2, speed=1), moved(3, where=3, speed=1)):
        with pytest.raises(Corrupt, match="Moved event"):
            NEWER.decode(data)


def test_a_version_that_nobody_can_bring_up_to_date_is_corrupt() -> None:
    with pytest.raises(Corrupt, match="version 0"):
        NEWER.decode(moved(0, place="here"))


@pytest.mark.parametrize("payload", [[], "x", 3])
def test_an_older_version_that_is_no_object_is_corrupt(payload: Any) -> None:
    with pytest.raises(Corrupt, match="Moved event"):
        NEWER.decode(line(event_type="Moved", event_version=1, payload=payload))


def test_a_newer_version_is_read_while_its_shape_fits() -> None:
    read = NEWER.decode(moved(9, where="here", speed=2, colour="red"))
    assert read.payload == Moved(where="here", speed=2)
    assert read.event_version == 9


def test_a_newer_version_of_another_shape_is_unknown_and_kept() -> None:
    read = NEWER.decode(moved(9, position=[1, 2]))
    assert isinstance(read.payload, Unknown)
    assert json.loads(bytes(read.payload.payload)) == {"position": [1, 2]}


def test_an_event_of_an_unknown_type_is_kept_as_it_was_written() -> None:
    read = VOCABULARY.decode(line(event_type="Teleported", payload={"to": ["mars", 4.5]}))
    assert isinstance(read.payload, Unknown)
    assert json.loads(bytes(read.payload.payload)) == {"to": ["mars", 4.5]}


def test_fields_that_nobody_knows_are_passed_over() -> None:
    assert isinstance(VOCABULARY.decode(line(mood="good")), Event)


def test_an_unknown_event_changes_nothing_but_is_no_error() -> None:
    story = facts.Story()
    unknown = VOCABULARY.decode(line(event_type="Teleported", payload={"run_id": "R"}))
    assert not story.state.needs([unknown])
    story.state.fold(place([unknown], 1))
    assert not story.state.runs


# --- Lines that are no events ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "field",
    ["event_id", "event_type", "event_version", "timestamp", "source", "tenant_id", "payload"],
)
def test_a_line_without_a_field_of_the_envelope_is_corrupt(field: str) -> None:
    with pytest.raises(Corrupt, match=field):
        VOCABULARY.decode(line(**{field: None}))


@pytest.mark.parametrize(
    "changed",
    [
        {"event_version": "1"},
        {"timestamp": "yesterday"},
        {"payload": []},
        {"payload": {"run_id": 3}},
        {"payload": {}},
    ],
    ids=str,
)
def test_a_field_of_another_kind_is_corrupt(changed: dict[str, Any]) -> None:
    with pytest.raises(Corrupt):
        VOCABULARY.decode(line(**changed))


def test_a_timestamp_without_a_zone_is_corrupt() -> None:
    with pytest.raises(Corrupt):
        VOCABULARY.decode(line(timestamp="2025-01-01T00:00:00"))


def test_a_failure_that_no_worker_could_have_reported_is_corrupt() -> None:
    fields = json.loads(encode(facts.event(EXAMPLES[7])))
    fields["payload"]["error"]["message"] = " "
    with pytest.raises(Corrupt, match="TaskFinished event"):
        VOCABULARY.decode(json.dumps(fields).encode())


def _hostile() -> Iterator[tuple[str, bytes]]:
    with VECTORS.open(encoding="utf-8") as lines:
        for text in lines:
            vector = json.loads(text)
            yield vector["id"], base64.b64decode(vector["bytes_b64"])


@pytest.mark.skipif(not VECTORS.exists(), reason=f"{VECTORS} is not here")
def test_hostile_json_is_corrupt_and_nothing_worse() -> None:
    """As a line, and as the payload of one: of a known type and an unknown one."""
    tried = 0
    for _, data in _hostile():
        with pytest.raises(Corrupt):
            VOCABULARY.decode(data)
        for name in ("DispatchRequested", "Teleported"):
            try:
                VOCABULARY.decode(line(event_type=name, payload="@").replace(b'"@"', data))
            except Corrupt:
                tried += 1
    assert tried > 300
