"""Servo: an asset-centric data orchestrator whose whole state is a log of facts.

The public names. They are loaded when they are first used, so that `import servo` costs nothing.
"""

TYPE_CHECKING = False  # type checkers know the name; importing it from typing would cost 15 ms
if TYPE_CHECKING:
    from servo.core.keys import AssetKey, PartitionKey
    from servo.errors import ServoError
    from servo.sdk.asset import asset

__version__ = "0.1.0"

__all__ = ("AssetKey", "PartitionKey", "ServoError", "__version__", "asset")

_HOMES = {
    "AssetKey": "servo.core.keys",
    "PartitionKey": "servo.core.keys",
    "ServoError": "servo.errors",
    "asset": "servo.sdk.asset",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'servo' has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
