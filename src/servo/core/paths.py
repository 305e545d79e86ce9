"""Paths of objects and names of workspaces: what may be written where.

A path is relative to a workspace: parts of letters, digits and `._=-`, joined by `/`. No part is
empty or begins with a dot, so none can climb out, hide, or mean two things on two stores.
"""

import re

from servo.errors import Invalid

_PART = r"[A-Za-z0-9_=-][A-Za-z0-9._=-]{0,199}"
_PATH = re.compile(rf"{_PART}(?:/{_PART})*\Z")
_PREFIX = re.compile(rf"(?:{_PART}/)*(?:{_PART})?\Z")
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}\Z")
MAX_PATH = 900


def check_path(path: str) -> str:
    if len(path) > MAX_PATH or not _PATH.match(path):
        raise Invalid(
            f"{path[:80]!r} is not a path inside a workspace; write it like 'tables/runs/x'"
        )
    return path


def check_prefix(prefix: str) -> str:
    """The beginning of a path, or nothing: what a listing asks for."""
    if len(prefix) > MAX_PATH or not _PREFIX.match(prefix):
        raise Invalid(f"{prefix[:80]!r} is not the beginning of a path inside a workspace")
    return prefix


def workspace_prefix(tenant: str, workspace: str) -> str:
    """`{tenant}/{workspace}`, the folder that holds everything of a workspace."""
    for what, name in (("tenant", tenant), ("workspace", workspace)):
        if not _NAME.match(name):
            raise Invalid(
                f"{name[:80]!r} is not the name of a {what}; use lower-case letters, digits, '-' and"
                " '_', beginning with a letter or digit"
            )
    return f"{tenant}/{workspace}"
