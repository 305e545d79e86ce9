"""The composition root: stores that are bound to a workspace, engines that run a project."""

import asyncio
from pathlib import Path

import pytest

from servo.core.plan import PlanRequest
from servo.core.planner import PlanningState, make_plan
from servo.core.states import RunState
from servo.errors import Invalid
from servo.fold.tables.runs import Summary
from servo.ports.executor import Work
from servo.ports.store import Store
from servo.runtime import requests
from servo.runtime.session import Session
from servo.wiring import find_project, load_project, now
from servo.wiring.engines import make_engine, make_idle_engine
from servo.wiring.stores import exists, is_led, memory_store, open_store, prepare
from tests.house.test_imports_light import loaded_by

ASSETS = """\
from servo import asset

made = []


@asset
def one():
    made.append("one")


@asset(deps=[one])
async def two():
    made.append("two")


async def later():
    made.append("three")


@asset(deps=[two])
def three():
    return later()


@asset
def wrong():
    raise ValueError("text")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "servo.toml").write_text('modules = ["wiring_assets"]\n')
    (tmp_path / "wiring_assets.py").write_text(ASSETS)
    return tmp_path


def run(
    folder: Path, store: Store, selection: str
) -> tuple[Summary, list[str], list[tuple[Work, BaseException]]]:
    """A run of some assets, what they made, and what they raised."""
    project = load_project(folder)
    raised: list[tuple[Work, BaseException]] = []

    async def go() -> Summary:
        engine = make_engine(project, store, failed=lambda *told: raised.append(told))
        plan = make_plan(PlanRequest(selection=selection), project.manifest, PlanningState(now()))
        async with Session(engine) as session:
            deployment = await requests.deploy(engine, project.manifest)
            ref = requests.code_ref(project.manifest)
            assert ref == f"deployment:{deployment}"
            asked = await requests.trigger(engine, plan, code_ref=ref, deployment_id=deployment)
            return await session.ended(asked.run_id)

    summary = asyncio.run(go())
    made: list[str] = project.functions["default/one"].__globals__["made"]
    return summary, made, raised


def test_functions_and_coroutines_are_called_in_order(folder: Path) -> None:
    summary, made, raised = run(folder, memory_store(), "three or two or one")
    assert summary.state is RunState.SUCCEEDED
    assert (made, raised) == (["one", "two", "three"], [])


def test_what_an_asset_raises_is_handed_to_who_asked(folder: Path) -> None:
    summary, _, raised = run(folder, memory_store(), "wrong")
    assert summary.state is RunState.FAILED
    [(work, error)] = raised
    assert (work.asset_key, str(error)) == ("default/wrong", "text")


def test_the_same_definitions_have_the_same_code_ref_wherever_they_are(folder: Path) -> None:
    one, two = (requests.code_ref(load_project(folder).manifest) for _ in range(2))
    assert one == two
    (folder / "wiring_assets.py").write_text(ASSETS.replace("text", "other"))
    assert requests.code_ref(load_project(folder).manifest) != one


def test_a_store_lies_under_its_tenant_and_workspace(folder: Path) -> None:
    prepare(folder / ".servo", "acme", "prod")
    run(folder, open_store(folder / ".servo", "acme", "prod"), "one")
    assert exists(folder / ".servo", "acme", "prod")
    assert (folder / ".servo" / "acme" / "prod" / "ledger").is_dir()
    assert not exists(folder / ".servo")


def test_opening_a_store_writes_nothing(folder: Path) -> None:
    store = open_store(folder / ".servo")
    assert asyncio.run(store.log.head()) == 0
    assert not (folder / ".servo").exists()


def test_preparing_leaves_no_trace_of_the_probe(folder: Path) -> None:
    prepare(folder / ".servo")
    files = [path.name for path in (folder / ".servo").rglob("*") if path.is_file()]
    assert files == [".gitignore"]


def test_who_leads_is_seen_without_touching_anything(folder: Path) -> None:
    place = folder / ".servo"
    assert not is_led(place)
    assert not place.exists()
    store = open_store(place)
    assert store.lock is not None and store.lock.acquire()
    assert is_led(place)
    store.lock.release()
    assert not is_led(place)
    assert store.lock.acquire()  # looking takes nothing away
    store.lock.release()


def test_an_idle_engine_ends_a_run_without_its_code(folder: Path) -> None:
    store = memory_store()
    project = load_project(folder)
    plan = make_plan(PlanRequest(selection="two or one"), project.manifest, PlanningState(now()))

    async def go() -> Summary:
        async with Session(make_idle_engine(store)) as asking:
            ref = requests.code_ref(project.manifest)
            run_id, _ = await requests.trigger(asking.engine, plan, code_ref=ref)
        async with Session(make_idle_engine(store)) as ending:
            await requests.cancel(ending.engine, run_id)
            return await ending.ended(run_id)

    end = asyncio.run(go())
    assert (end.state, end.counts) == (RunState.CANCELLED, {"CANCELLED": 2})


@pytest.mark.parametrize("name", ["../up", "", "Main", "a/b"])
def test_a_workspace_cannot_leave_its_place(name: str, tmp_path: Path) -> None:
    with pytest.raises(Invalid, match="is not the name of a workspace"):
        open_store(tmp_path, workspace=name)


@pytest.mark.parametrize(
    ("command", "unwanted"),
    [
        ("plan", {"asyncio", "arro3", "duckdb", "servo.runtime.engine"}),
        ("status", {"duckdb", "servo.runtime.engine"}),
        ("run", {"duckdb", "arro3"}),
    ],
)
def test_a_command_loads_only_what_it_needs(command: str, unwanted: set[str]) -> None:
    assert loaded_by(f"import servo.cli.{command}") & unwanted == set()


def test_a_project_is_found_without_its_code(folder: Path) -> None:
    (folder / "wiring_assets.py").write_text("raise RuntimeError")
    assert find_project(folder) == folder.resolve()
    with pytest.raises(Invalid, match=r"there is no servo\.toml"):
        find_project(folder.parent)
