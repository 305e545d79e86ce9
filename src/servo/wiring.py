"""The composition root: the only module that knows adapters, and what the faces call."""

from collections.abc import Mapping
from datetime import datetime
from pathlib import Path

from servo.adapters import system
from servo.runtime.project import Project, load


def load_project(folder: Path) -> Project:
    return load(folder)


def now() -> datetime:
    return system.now()


def environment() -> Mapping[str, str]:
    return system.environment()
