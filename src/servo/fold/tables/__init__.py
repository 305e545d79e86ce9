"""Every table. A new one is a file here and its line below."""

from typing import Any

from servo.fold.projection import Projection
from servo.fold.table import Table
from servo.fold.tables import attempts, edges, runs, tasks
from servo.fold.tables.assets import Assets
from servo.fold.tables.audit import Audit
from servo.fold.tables.deployments import Deployments
from servo.fold.tables.materializations import Materializations
from servo.fold.tables.partitions import Partitions
from servo.fold.tables.run_keys import RunKeys

PROJECTIONS: tuple[Projection[Any], ...] = (
    Materializations(),
    Partitions(),
    RunKeys(),
    Deployments(),
    Assets(),
    Audit(),
)
"""Tables whose rows stand for themselves; those of a run belong together (`servo.fold.runs`)."""

TABLES: tuple[Table, ...] = (
    runs.TABLE,
    tasks.TABLE,
    attempts.TABLE,
    edges.TABLE,
    *(projection.table for projection in PROJECTIONS),
)
