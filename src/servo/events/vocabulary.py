"""Every fact that this Servo knows, in one place."""

from servo.events import audit, catalog, execution, orchestration
from servo.events.envelope import Vocabulary

VOCABULARY = Vocabulary(
    (*orchestration.FACTS, *execution.FACTS, *catalog.FACTS, *audit.FACTS), upcasts={}
)
