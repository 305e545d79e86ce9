"""The same inputs give the same plan, byte for byte, whatever the process around the planner is like."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from servo.core import plan as plans
from tests.integration.command import NOW, SHOP, environment

SYNTHETIC = '''
"""About 200 assets of many kinds, declared in an order that the seed decides."""

import random
from servo import asset
from servo.types import *

rng = random.Random(SEED)

def shuffled(items):
    items = list(items)
    rng.shuffle(items)
    return items

days = DailyPartition("date", start="2024-01-01", timezone="America/New_York")
hours = HourlyPartition("hour", start="2024-01-20", timezone="Australia/Lord_Howe")
weeks = WeeklyPartition("week", start="2024-01-01")
months = MonthlyPartition("month", start="2023-01-01")
regions = StaticPartition("region", ["eu", "us", "apac"])
tiers = StaticPartition("tier", [1, 2, True, "1"])

KINDS = [
    None, days, hours, weeks, months, regions, [days, regions], [regions, days, tiers], [tiers],
]

def declare(number):
    by = KINDS[number % len(KINDS)]
    same = [n for n in range(number) if n % len(KINDS) == number % len(KINDS)][-3:]
    deps = {f"layer{n % 4}.asset_{n:03}": None for n in same}
    if number % len(KINDS) == 1 and number > 9:
        deps[f"layer{(number - 9) % 4}.asset_{number - 9:03}"] = LastN(5)
    if number % len(KINDS) == 3 and number > 9:
        deps[f"layer{(number - 2) % 4}.asset_{number - 2:03}"] = None  # weekly from daily
    if number % len(KINDS) == 0 and number > 9:
        deps[f"layer{(number - 4) % 4}.asset_{number - 4:03}"] = AllPartitions()  # of regions
    tags = {f"tag{n}": str(n) for n in range(number % 5)}

    @asset(
        name=f"asset_{number:03}",
        namespace=f"layer{number % 4}",
        deps=dict(shuffled(deps.items())),
        partitions=shuffled(by) if isinstance(by, list) else by,
        tags=dict(shuffled(tags.items())),
        owners=[f"owner{number % 3}"],
    )
    def function():
        """The same code for each."""

for number in shuffled(range(200)):
    declare(number)
'''

SCRIPT = """
import hashlib, sys
from datetime import datetime
from pathlib import Path
from servo.core import plan as plans
from servo.core.plan import PlanRequest
from servo.core.planner import PlanningState, make_plan
from servo.runtime.project import load

manifest = load(Path(sys.argv[1])).manifest
if sys.argv[2] == "reversed":
    import msgspec
    manifest = msgspec.structs.replace(manifest, assets=tuple(reversed(manifest.assets)))
request = PlanRequest(selection=sys.argv[3])
plan = make_plan(request, manifest, PlanningState(datetime.fromisoformat(sys.argv[4])))
sys.stdout.buffer.write(plans.dump(plan))
"""


def planned(
    project: Path, *, selection: str = "*", order: str = "as declared", cwd: Path, **env: str
) -> bytes:
    # The manifest's own places (files and lines) differ between folders; a plan must not.
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, os.path.relpath(project, cwd), order, selection, NOW],
        capture_output=True,
        cwd=cwd,
        env=environment(**env),
    )
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout


WORLDS = [
    {"PYTHONHASHSEED": "0", "TZ": "UTC", "LC_ALL": "C"},
    {"PYTHONHASHSEED": "1", "TZ": "America/New_York", "LC_ALL": "C.UTF-8"},
    {"PYTHONHASHSEED": "42", "TZ": "Asia/Kathmandu", "LANG": "de_DE.UTF-8", "LC_ALL": ""},
    {"PYTHONHASHSEED": "random", "TZ": "Australia/Lord_Howe", "PYTHONOPTIMIZE": "1"},
]


def synthetic(folder: Path, seed: int) -> Path:
    folder.mkdir(parents=True)
    (folder / "servo.toml").write_text('modules = ["assets"]\n')
    (folder / "assets.py").write_text(SYNTHETIC.replace("SEED", str(seed)))
    return folder


def digests(found: list[bytes]) -> set[str]:
    return {hashlib.sha256(each).hexdigest() for each in found}


def test_the_example_has_the_same_plan_in_every_world(tmp_path: Path) -> None:
    copy = tmp_path / "a copy, elsewhere"
    shutil.copytree(SHOP, copy, ignore=shutil.ignore_patterns("__pycache__"))
    found = [
        planned(project, cwd=cwd, order=order, **world)
        for world, project, cwd, order in zip(
            WORLDS,
            (SHOP, copy, SHOP, copy),
            (tmp_path, tmp_path, SHOP, Path("/")),
            ("as declared", "reversed", "reversed", "as declared"),
            strict=True,
        )
    ]
    assert len(digests(found)) == 1
    assert len(plans.load(found[0]).tasks) == 47


@pytest.mark.parametrize("selection", ["*", "+layer1.asset_197 or tag:tag3"])
def test_many_assets_have_the_same_plan_in_whichever_order_they_are_declared(
    tmp_path: Path, selection: str
) -> None:
    found = [
        planned(
            synthetic(tmp_path / f"{number}" / "project", seed=number),
            selection=selection,
            cwd=tmp_path,
            order="reversed" if number % 2 else "as declared",
            **world,
        )
        for number, world in enumerate(WORLDS)
    ]
    assert len(digests(found)) == 1
    plan = plans.load(found[0])
    assert plan.stages() > 5
    assert len(plan.tasks) > 150
    assert len({plans.load(each).fingerprint for each in found}) == 1


def test_a_plan_names_no_file_of_the_machine_it_was_made_on(tmp_path: Path) -> None:
    found = planned(SHOP, cwd=tmp_path)
    for trace in (str(SHOP), "shop_assets", ".py", str(tmp_path)):
        assert trace not in found.decode()


def test_a_plan_is_canonical_json(tmp_path: Path) -> None:
    found = planned(SHOP, cwd=tmp_path)
    again = json.dumps(json.loads(found), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    assert found == again.encode()


def test_another_time_of_day_is_the_same_work(tmp_path: Path) -> None:
    # The bytes record the moment; the fingerprint covers the work.
    first = plans.load(planned(SHOP, cwd=tmp_path))
    assert first.now == "2024-02-01T06:00:00+00:00"
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(SHOP), "as declared", "*", "2024-02-01T23:59:59+00:00"],
        capture_output=True,
        check=True,
        env=environment(),
    )
    later = plans.load(done.stdout)
    assert (later.fingerprint, later.now) == (first.fingerprint, "2024-02-01T23:59:59+00:00")
