"""Lines that were written once are read for ever, and written the same way (event_lines.json).

What a line leaves out has the value that is the default in format 1; a default never changes.
"""

import json
from pathlib import Path

import pytest

from servo.events.envelope import encode
from servo.events.vocabulary import VOCABULARY

LINES = json.loads((Path(__file__).parents[1] / "vectors" / "event_lines.json").read_text())[
    "lines"
]


def name(line: str) -> str:
    kind: str = json.loads(line)["event_type"]
    return kind


@pytest.mark.parametrize("line", LINES, ids=name)
def test_a_line_reads_back_as_itself(line: str) -> None:
    event = VOCABULARY.decode(line.encode())
    assert type(event.payload).__name__ == event.event_type
    assert encode(event).decode() == line


def test_every_fact_has_a_line() -> None:
    assert {fact.__name__ for fact in VOCABULARY} == {name(line) for line in LINES}


def test_what_a_line_leaves_out_has_its_first_default() -> None:
    events = [VOCABULARY.decode(line.encode()) for line in LINES]
    facts = {event.event_type: event.payload for event in reversed(events)}
    assert (facts["RunCancelRequested"].by, facts["RunCancelRequested"].message) == ("user", "")
    assert facts["RunTriggered"].run_key is None and facts["RunTriggered"].deployment_id is None
    finished = facts["TaskFinished"]
    assert (finished.error, finished.retriable, finished.cpu_us) == (None, False, None)
    assert facts["MaterializationCompleted"].schema_hash is None
    assert (events[0].correlation_id, events[0].causation_id, events[0].actor) == (None, None, None)
