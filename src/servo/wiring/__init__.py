"""The composition root: the only room that knows adapters, and what the faces call.

Here is what every command needs. Stores and engines are in modules of their own, because planning
needs neither and they take longer to import than a plan takes to make.
"""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from servo.adapters import system
from servo.runtime.project import Project, find, load


def load_project(folder: Path) -> Project:
    return load(folder)


def find_project(folder: Path) -> Path:
    return find(folder)


def now() -> datetime:
    return system.now()


def environment() -> Mapping[str, str]:
    return system.environment()
