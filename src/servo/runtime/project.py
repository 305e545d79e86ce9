"""Projects: a folder with a `servo.toml`, and the assets that its modules declare.

    # servo.toml
    modules = ["shop.assets"]     # imported in this order; every asset they hold is found
    namespace = "shop"            # of assets that do not name one; optional

Loading imports the user's code. What goes wrong there is the user's to mend, so it is told with the
file and line of theirs and without the frames in between.
"""

import importlib
import inspect
import sys
import textwrap
import tomllib
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import msgspec

from servo.core import canonical
from servo.core.definitions import Manifest
from servo.core.keys import ASSET_PART, AssetKey
from servo.errors import Invalid, did_you_mean
from servo.sdk.asset import Asset

FILE = "servo.toml"
DEFAULT_NAMESPACE = "default"


class Project(msgspec.Struct, frozen=True, kw_only=True):
    """A loaded project."""

    root: Path
    manifest: Manifest


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    """What `servo.toml` says."""

    modules: tuple[str, ...]
    namespace: str = DEFAULT_NAMESPACE


def load(folder: Path) -> Project:
    """The project in a folder, with everything its modules declare."""
    root = folder.resolve()
    settings = read_settings(root)
    # First on the path, so that the project's own modules win; as a script's folder would be.
    if str(root) not in sys.path:
        sys.path.insert(0, str(root))
    modules = [_import(name, root) for name in settings.modules]
    manifest = Manifest(
        namespace=settings.namespace,
        assets=tuple(
            asset.define(settings.namespace, code_version(asset))
            for asset in find_assets(modules, settings.namespace).values()
        ),
    )
    if not manifest.assets:
        raise Invalid(
            f"{root / FILE}: its modules ({', '.join(settings.modules)}) declare no assets;"
            " put @asset on a function in one of them"
        )
    manifest.graph()
    return Project(root=root, manifest=manifest)


def read_settings(root: Path) -> Settings:
    path = root / FILE
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Invalid(
            f'there is no {FILE} in {root}; make one with the line modules = ["my_assets"],'
            " or name another folder with --project"
        ) from None
    except NotADirectoryError:
        raise Invalid(f"{root} is not a folder; name the project's folder") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise Invalid(f"{path} is not TOML: {error}") from None
    return _settings(data, path)


def _settings(data: Mapping[str, Any], path: Path) -> Settings:
    known = Settings.__struct_fields__
    for name in data:
        if name not in known:
            raise Invalid(
                f"{path}: {name!r} is no setting{did_you_mean(name, known)}"
                f" (settings: {', '.join(known)})"
            )
    modules = data.get("modules")
    if (
        not isinstance(modules, list)
        or not modules
        or not all(isinstance(name, str) and name for name in modules)
    ):
        raise Invalid(f'{path}: modules must be a list of module names, like ["shop.assets"]')
    namespace = data.get("namespace", DEFAULT_NAMESPACE)
    if not isinstance(namespace, str) or not ASSET_PART.match(namespace):
        raise Invalid(
            f"{path}: namespace {namespace!r} is not allowed: use lower-case letters, digits and _,"
            " beginning with a letter"
        )
    return Settings(modules=tuple(modules), namespace=namespace)


def _import(name: str, root: Path) -> ModuleType:
    try:
        return importlib.import_module(name)
    except Invalid as why:
        # Said by a declaration, which names its own file and line.
        raise Invalid(f"module {name!r}: {why}") from None
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            raise Invalid(
                f"{root / FILE} names the module {name!r}, which is not in {root}"
                " or installed; correct modules"
            ) from None
        raise Invalid(f"module {name!r} cannot be imported: {_where(error, root)}") from None
    except Exception as error:  # noqa: BLE001  # user code may raise anything
        raise Invalid(f"module {name!r} cannot be imported: {_where(error, root)}") from None
    except SystemExit:
        raise Invalid(f"module {name!r} ends the program when imported; remove that") from None


def _where(error: BaseException, root: Path) -> str:
    """The user's line, and what happened there."""
    said = f"{type(error).__name__}: {error}"
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}: {said}"
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename[:1] != "<"]
    own = [f for f in frames if Path(f.filename).is_relative_to(root)] or frames
    return f"{own[-1].filename}:{own[-1].lineno}: {said}" if own else said


def find_assets(modules: Iterable[ModuleType], namespace: str) -> dict[AssetKey, Asset[..., Any]]:
    """Every asset that the modules hold, by key. One that several of them import is one asset."""
    found: dict[AssetKey, Asset[..., Any]] = {}
    for module in modules:
        for value in list(vars(module).values()):
            if not isinstance(value, Asset):
                continue
            key = value.key(namespace)
            other = found.setdefault(key, value)
            if other is not value:
                raise Invalid(
                    f"asset {key} is declared twice: at {_place(other)} and at {_place(value)};"
                    " rename one"
                )
    return found


def _place(asset: Asset[..., Any]) -> str:
    code = getattr(asset.function, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else repr(asset)


def code_version(asset: Asset[..., Any]) -> str:
    """A fingerprint of the function's source, wherever its file stands."""
    try:
        lines = textwrap.dedent(inspect.getsource(asset.function)).splitlines()
    except (OSError, TypeError):
        raise Invalid(
            f"asset {asset.name!r}: its source cannot be read; declare it in a file"
        ) from None
    return canonical.fingerprint("\n".join(line.rstrip() for line in lines))
