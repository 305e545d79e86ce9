"""Facts about definitions."""

from collections.abc import Mapping
from typing import ClassVar

from servo.events.envelope import Fact


class DeploymentCreated(Fact, frozen=True, kw_only=True):
    """Definitions, which lie in `manifest_object`, became known.

    `asset_ids` names an id for each asset key. The first deployment (by place) that names a key gives
    the asset its id; so whoever writes this reads back which ids stand before it uses one.
    """

    domain: ClassVar[str] = "catalog"

    deployment_id: str
    manifest_object: str
    code_version: str
    asset_ids: Mapping[str, str]

    def key(self) -> str:
        return f"deployment:{self.deployment_id}"


FACTS: tuple[type[Fact], ...] = (DeploymentCreated,)
