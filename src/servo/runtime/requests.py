"""What callers ask of a workspace: deploy definitions, start a run, stop it, wait for its end.

Each is a fact that an engine writes, whether it leads or not; large values go to the store first.
"""

from typing import NamedTuple

from servo.core import definitions
from servo.core import plan as plans
from servo.core.canonical import fingerprint
from servo.core.definitions import Manifest
from servo.core.ids import queue_id
from servo.core.plain import to_plain
from servo.core.plan import Plan
from servo.core.segments import digest
from servo.errors import Conflict, Invalid
from servo.events.catalog import DeploymentCreated
from servo.events.orchestration import RunCancelRequested, RunTriggered, Stop
from servo.fold.records import Claim
from servo.fold.shape import Shape
from servo.ledger.objects import put_value
from servo.runtime.engine import Engine

CLIENT = "client"


class Triggered(NamedTuple):
    run_id: str
    new: bool
    """False: the run key stood for this run already."""


def code_ref(manifest: Manifest) -> str:
    """Who can load the code of a run of these definitions: whoever deployed the same ones."""
    return f"deployment:{queue_id('v', digest(definitions.dump(manifest)))}"


async def deploy(engine: Engine, manifest: Manifest, *, actor: str | None = None) -> str:
    """Make definitions known; the id of their deployment. The same definitions are one deployment."""
    ref = await put_value(engine.store.objects, definitions.dump(manifest))
    deployment_id = queue_id("v", ref)
    await engine.settled()
    if (deployment_id,) not in engine.state.records["deployments"]:
        # Ids that were not taken before; where two deployments meet, the first in the ledger stands,
        # and every use of an id reads it back from the state.
        ids = {
            asset.key.canonical: engine.state.asset_id(asset.key.canonical) or engine.new_id()
            for asset in manifest.assets
        }
        code = fingerprint({a.key.canonical: a.code_version for a in manifest.assets})
        fact = DeploymentCreated(
            deployment_id=deployment_id, manifest_object=ref, code_version=code, asset_ids=ids
        )
        await engine.submit([fact], source=CLIENT, actor=actor)
    return deployment_id


async def trigger(
    engine: Engine,
    plan: Plan,
    *,
    code_ref: str,
    deployment_id: str | None = None,
    run_key: str | None = None,
    actor: str | None = None,
) -> Triggered:
    """Ask for a run of a plan. With a run key, asking again for the same is the same run; asking for
    something else under the same key is a `Conflict`."""
    asked = fingerprint(to_plain(plan.request))
    if run_key is not None and (known := await engine.run_of_key(run_key)) is not None:
        return _same(engine, run_key, known, asked)
    ref = await put_value(engine.store.objects, plans.dump(plan))
    engine.state.learn(ref, Shape(plan))
    fact = RunTriggered(
        run_id=engine.new_id(),
        plan_object=ref,
        fingerprint=plan.fingerprint,
        code_ref=code_ref,
        request_hash=asked,
        run_key=run_key,
        deployment_id=deployment_id,
    )
    engine.own.add(fact.run_id)
    await engine.submit([fact], source=CLIENT, actor=actor)
    if run_key is None:
        return Triggered(fact.run_id, True)
    # Another may have asked at the same time; the ledger says who was first.
    owner = await engine.run_of_key(run_key)
    assert owner is not None, "the trigger is durable, so the key has an owner"
    if owner.run_id == fact.run_id:
        return Triggered(fact.run_id, True)
    return _same(engine, run_key, owner, asked)


def _same(engine: Engine, run_key: str, owner: Claim, asked: str) -> Triggered:
    """The run that a key stands for already, if it was asked for the same."""
    if owner.request_hash != asked:
        raise Conflict(
            f"the run key {run_key!r} stands for run {owner.run_id}, which was asked for something"
            " else; use another key, or ask for the same"
        )
    engine.own.add(owner.run_id)
    return Triggered(owner.run_id, False)


async def cancel(
    engine: Engine, run_id: str, *, message: str = "", actor: str | None = None
) -> None:
    """Tell a run to stop. One that has ended stays as it is."""
    if not await engine.knows_run(run_id):
        raise Invalid(f"there is no run {run_id}; 'servo status' lists runs")
    fact = RunCancelRequested(run_id=run_id, by=Stop.USER, message=message)
    await engine.submit([fact], source=CLIENT, actor=actor)
