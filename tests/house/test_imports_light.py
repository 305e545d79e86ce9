"""`import servo` stays light: heavy libraries are loaded where they are used."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.house.source import SRC

THIRD_PARTY = {
    *("polars", "pandas", "pyarrow", "duckdb", "numpy", "obstore", "arro3", "narwhals", "sqlglot"),
    *("click", "rich", "ray", "dask", "grpc", "httpx", "requests", "uvicorn", "starlette"),
    *("litestar", "fastapi", "pydantic", "structlog", "opentelemetry", "prometheus_client"),
    *("boto3", "google", "azure", "psycopg", "asyncpg", "sqlalchemy", "cronsim", "hypothesis"),
}
STANDARD = {
    *("asyncio", "ssl", "http", "email", "importlib.metadata", "importlib.resources", "logging"),
    *("multiprocessing", "concurrent", "subprocess", "socket", "sqlite3", "unittest", "xml"),
    *("tempfile", "urllib.request", "zoneinfo", "difflib", "argparse", "pdb", "doctest"),
}
HEAVY = THIRD_PARTY | STANDARD

PUBLIC = ["servo"] + [
    f"servo.{name}" for name in ("types", "check") if (SRC / "servo" / f"{name}.py").exists()
]


def loaded_by(code: str) -> set[str]:
    """Modules that `code` loads beyond those of a bare interpreter."""
    script = (
        "import sys; bare = set(sys.modules)\n"
        f"{code}\n"
        "import json; print(json.dumps(sorted(set(sys.modules) - bare)))"
    )
    result = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return set(json.loads(result.stdout))


def heavy_among(modules: set[str]) -> set[str]:
    return {name for name in HEAVY if any(m == name or m.startswith(name + ".") for m in modules)}


@pytest.mark.parametrize("module", PUBLIC)
def test_importing_a_public_module_loads_nothing_heavy(module: str) -> None:
    assert heavy_among(loaded_by(f"import {module}")) == set()


def test_using_the_facade_loads_no_heavy_library() -> None:
    modules = loaded_by(
        "import servo\nservo.asset, servo.AssetKey, servo.PartitionKey, servo.ServoError"
    )
    assert heavy_among(modules) == set()


def test_the_bare_facade_loads_no_room_of_servo() -> None:
    assert {name for name in loaded_by("import servo") if name.startswith("servo.")} == set()


def test_a_heavy_import_is_noticed() -> None:
    assert heavy_among(loaded_by("import click")) >= {"click"}
    assert heavy_among(loaded_by("import importlib.metadata")) >= {"importlib.metadata", "email"}
