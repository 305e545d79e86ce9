"""Projects: `servo.toml`, the import of users' modules, and which assets they give."""

import importlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from servo.core.definitions import AssetDefinition
from servo.errors import Invalid
from servo.runtime import project
from servo.runtime.project import load, read_settings

Make = Callable[..., Path]


@pytest.fixture(autouse=True)
def interpreter() -> Iterator[None]:
    """Loading a project changes the interpreter; each test gets it as it was."""
    path, modules, compiled = [*sys.path], {*sys.modules}, sys.dont_write_bytecode
    # A module that is changed twice within a second would be read from its compiled file.
    sys.dont_write_bytecode = True
    yield
    sys.path[:] = path
    for name in sys.modules.keys() - modules:
        del sys.modules[name]
    sys.dont_write_bytecode = compiled


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Writes a project: `make(assets="…", toml="…", other="…")`, each a module's text."""

    def write(folder: str = "project", /, *, toml: str | bytes | None = None, **files: str) -> Path:
        root = tmp_path / folder
        root.mkdir(exist_ok=True, parents=True)
        if toml is None:
            toml = f"modules = {[name for name in files if '__' not in name]}"
        (root / "servo.toml").write_bytes(toml if isinstance(toml, bytes) else toml.encode())
        for name, text in files.items():
            path = (root / name.replace("__", "/")).with_suffix(".py")
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return root

    return write


def asset(name: str, body: str = "...", arguments: str = "") -> str:
    return f"from servo import asset\n\n@asset({arguments})\ndef {name}():\n    {body}\n"


def names(root: Path) -> list[str]:
    return [str(found.key) for found in load(root).manifest.assets]


def refusal(root: Path) -> str:
    with pytest.raises(Invalid) as caught:
        load(root)
    return str(caught.value)


# servo.toml


def test_a_folder_without_servo_toml_is_told_what_to_write(tmp_path: Path) -> None:
    assert refusal(tmp_path) == (
        f'there is no servo.toml in {tmp_path}; make one with the line modules = ["my_assets"],'
        " or name another folder with --project"
    )


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    assert refusal(tmp_path / "gone") == (
        f"there is no folder {tmp_path / 'gone'}; name the project's folder with --project"
    )


def test_a_file_in_place_of_the_folder_is_named(make: Make) -> None:
    file = make(assets=asset("a")) / "servo.toml"
    assert refusal(file) == f"{file} is not a folder; name the project's folder with --project"


def test_a_path_through_a_file_is_no_folder(make: Make) -> None:
    assert "there is no folder" in refusal(make(assets=asset("a")) / "servo.toml" / "x")


def test_links_in_a_circle_are_no_folder(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to(tmp_path / "b")
    (tmp_path / "b").symlink_to(tmp_path / "a")
    assert re.search("cannot be found|there is no folder", refusal(tmp_path / "a"))


def test_a_path_that_is_too_long_is_refused(tmp_path: Path) -> None:
    assert re.search("cannot be found|there is no folder", refusal(tmp_path / ("x" * 300)))


def test_a_deleted_working_directory_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert refusal(Path(".")) == "the folder '.' cannot be found: No such file or directory"


def test_a_folder_in_place_of_servo_toml_is_named(tmp_path: Path) -> None:
    (tmp_path / "servo.toml").mkdir()
    assert refusal(tmp_path) == f"{tmp_path / 'servo.toml'} cannot be read: Is a directory"


def test_an_unreadable_servo_toml_is_named(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make(assets=asset("a"))

    def denied(*_: object, **__: object) -> str:
        raise PermissionError(13, "Permission denied", str(root / "servo.toml"))

    monkeypatch.setattr(Path, "read_text", denied)  # the tests may run as root, who may read all
    assert refusal(root) == f"{root / 'servo.toml'} cannot be read: Permission denied"


@pytest.mark.parametrize(
    ("toml", "said"),
    [
        (b"\xff\xfe", "is not UTF-8 (byte 0); save it as UTF-8"),
        (b"modules = [", "is not TOML: "),
        (b"modules", "is not TOML: "),
        (
            b"a = 1\na = 2\n",
            "is not TOML: Cannot overwrite a value (at line 2, column 6); correct it",
        ),
        (b"x = " + b"[" * 5000, "is not TOML: "),
        (b"x = " + b"1" * 5000, "is not TOML: "),
        (b"x = 2024-13-01", "is not TOML: "),
        (b"module = ['a']", "'module' is no setting; did you mean 'modules'? (settings: modules,"),
        (b"zzz = 1", "'zzz' is no setting (settings: modules, namespace)"),
        (b"'' = 1", "'' is no setting (settings: modules, namespace)"),
        (
            b"[servo]\nmodules = ['a']",
            "settings stand at the top of the file; remove the line [servo]",
        ),
        (b"", 'modules is missing; list module names, like modules = ["shop.assets"]'),
        (b"modules = []", "modules is []; list module names"),
        (b"modules = 'a'", "modules is 'a'; list module names"),
        (b"modules = 3", "modules is 3; list module names"),
        (b"modules = {a = 1}", "modules is {'a': 1}; list module names"),
        (b"modules = [3]", "modules holds 3, which is not the name of a module; for the file"),
        (b"modules = ['']", "modules holds '', which is not the name of a module"),
        (b"modules = ['.a']", "modules holds '.a', which is not the name of a module"),
        (b"modules = ['a b']", "modules holds 'a b', which is not the name of a module"),
        (b"modules = ['a/b.py']", 'for the file shop/assets.py write "shop.assets"'),
        (b'modules = ["a\\u0000"]', "which is not the name of a module"),
        (b"modules = ['a']\nnamespace = ''", "namespace '' is not allowed: use lower-case"),
        (b"modules = ['a']\nnamespace = 'My'", "namespace 'My' is not allowed: use lower-case"),
        (b"modules = ['a']\nnamespace = 'a.b'", "namespace 'a.b' is not allowed"),
        (b"modules = ['a']\nnamespace = 3", "namespace 3 is not allowed"),
        (b"modules = ['a']\nnamespace = nan", "namespace nan is not allowed"),
    ],
)
def test_a_wrong_servo_toml_is_named_with_what_to_do(make: Make, toml: bytes, said: str) -> None:
    root = make(toml=toml)
    message = refusal(root)
    assert message.startswith(str(root / "servo.toml"))
    assert said in message
    assert len(message) < 600


def test_a_byte_order_mark_is_no_mistake(make: Make) -> None:
    assert read_settings(make(toml=b"\xef\xbb\xbfmodules = ['a']")).modules == ("a",)


def test_the_namespace_is_optional(make: Make) -> None:
    assert names(make(assets=asset("a"))) == ["default.a"]


def test_the_namespace_is_that_of_assets_without_one(make: Make) -> None:
    text = asset("a") + asset("b", arguments="namespace='raw', deps=['a']")
    root = make(toml="modules = ['assets']\nnamespace = 'shop'", assets=text)
    manifest = load(root).manifest
    assert [str(found.key) for found in manifest.assets] == ["raw.b", "shop.a"]
    assert str(manifest.assets[0].dependencies[0].upstream) == "shop.a"


# Imports


def test_a_missing_module_is_named_with_the_file_that_names_it(make: Make) -> None:
    root = make(toml="modules = ['nowhere_to_be_found']")
    assert refusal(root) == (
        f"{root / 'servo.toml'} names the module 'nowhere_to_be_found', which is not in {root}"
        " or installed; correct modules"
    )


def test_a_misspelt_module_is_guessed(make: Make) -> None:
    root = make(toml="modules = ['shop.asets']", shop__assets=asset("a"))
    assert refusal(root).endswith("; did you mean 'shop.assets'?")


def test_a_file_name_in_place_of_a_module_is_guessed(make: Make) -> None:
    root = make(toml="modules = ['assets.py']", assets=asset("a"))
    assert refusal(root).endswith("; did you mean 'assets'?")


def test_an_error_in_a_module_is_told_with_the_users_line(make: Make) -> None:
    root = make(assets="x = 1\n\ny = x / 0\n")
    assert refusal(root) == (
        f"module 'assets' cannot be imported: {root / 'assets.py'}:3: ZeroDivisionError:"
        " division by zero"
    )


def test_an_error_deep_in_a_library_is_told_with_the_users_last_line(make: Make) -> None:
    root = make(
        toml="modules = ['assets']",
        assets="import helper\n\nhelper.read()\n",
        helper="import json\n\ndef read():\n    return json.loads('{')\n",
    )
    assert f"{root / 'helper.py'}:4: JSONDecodeError: " in refusal(root)


def test_an_error_in_an_environment_inside_the_project_is_told_with_the_users_line(
    make: Make,
) -> None:
    site = ".venv/lib/site-packages"
    root = make(assets=f"import sys\nsys.path.append({site!r})\nimport broken_library\n")
    (root / site).mkdir(parents=True)
    (root / site / "broken_library.py").write_text("1 / 0\n")
    text = (root / "assets.py").read_text().replace(repr(site), repr(str(root / site)))
    (root / "assets.py").write_text(text)
    assert f"{root / 'assets.py'}:3: ZeroDivisionError" in refusal(root)


def test_no_line_of_servo_is_ever_told(make: Make) -> None:
    root = make(assets="from servo import asset\n\nasset(nme='a')\n")
    message = refusal(root)
    assert f"{root / 'assets.py'}:3: TypeError: " in message
    assert "runtime" not in message and "sdk" not in message


def test_an_error_without_a_message_is_told_by_its_kind(make: Make) -> None:
    root = make(assets="raise KeyError\n")
    assert refusal(root).endswith(f"{root / 'assets.py'}:1: KeyError")


def test_an_error_that_cannot_be_shown_is_told_by_its_kind(make: Make) -> None:
    text = "class Bad(Exception):\n    def __str__(self):\n        1 / 0\n\nraise Bad\n"
    root = make(assets=text)
    assert refusal(root).endswith(f"{root / 'assets.py'}:5: Bad")


def test_an_error_that_is_no_ordinary_exception_is_told_too(make: Make) -> None:
    root = make(assets="import asyncio\nraise asyncio.CancelledError('stop')\n")
    assert refusal(root).endswith(f"{root / 'assets.py'}:2: CancelledError: stop")


def test_a_keyboard_interrupt_in_a_module_is_the_users_own(make: Make) -> None:
    with pytest.raises(KeyboardInterrupt):
        load(make(assets="raise KeyboardInterrupt\n"))


def test_a_syntax_error_is_told_with_its_line(make: Make) -> None:
    root = make(assets="x = 1\ndef f(:\n")
    assert refusal(root) == (
        f"module 'assets' cannot be imported: {root / 'assets.py'}:2: SyntaxError: invalid syntax"
    )


def test_a_module_with_null_bytes_is_refused(make: Make) -> None:
    root = make(assets="x = 1\0\n")
    message = refusal(root)
    assert message.startswith("module 'assets' cannot be imported: ")
    assert "null bytes" in message and "project.py" not in message


def test_a_module_that_is_not_utf8_is_refused(make: Make) -> None:
    root = make(toml="modules = ['assets']")
    (root / "assets.py").write_bytes(b"x = '\xff'\n")
    assert re.search(r"assets\.py:\d+: SyntaxError: .*utf-8", refusal(root))


def test_a_missing_library_is_named_with_the_line_that_wants_it(make: Make) -> None:
    root = make(assets="import os\nimport no_such_library\n")
    assert refusal(root) == (
        f"module 'assets' cannot be imported: {root / 'assets.py'}:2: ModuleNotFoundError:"
        " No module named 'no_such_library'; install it, or correct the import"
    )


@pytest.mark.parametrize("end", ["sys.exit()", "sys.exit(0)", "sys.exit('done')", "exit(3)"])
def test_a_module_that_ends_the_program_is_refused(make: Make, end: str) -> None:
    root = make(assets=f"import sys\nfrom builtins import exit\n{end}\n")
    assert refusal(root) == (
        f"module 'assets' cannot be imported: {root / 'assets.py'}:3: it ends the program; remove"
        ' that, or put it under if __name__ == "__main__":'
    )


def test_a_circular_import_is_told_with_its_line(make: Make) -> None:
    root = make(one="from two import b\na = 1\n", two="from one import a\nb = 1\n")
    message = refusal(root)
    assert f"{root / 'two.py'}:1: ImportError: cannot import name 'a'" in message
    assert "circular import" in message


def test_modules_that_import_each_other_in_time_work(make: Make) -> None:
    root = make(
        one="import two\n" + asset("a"),
        two="import one\n" + asset("b", arguments="deps=['a']"),
    )
    assert names(root) == ["default.a", "default.b"]


def test_a_wrong_asset_is_told_once_with_its_line(make: Make) -> None:
    root = make(assets=asset("a", arguments="owners='me'"))
    assert refusal(root) == (
        f"module 'assets': asset 'a' ({root / 'assets.py'}:3): owners is 'me'; give a list of"
        " strings"
    )


def test_a_wrong_partition_is_told_with_its_line(make: Make) -> None:
    text = "from servo.types import DailyPartition\n\ndays = DailyPartition('date', start='soon')\n"
    root = make(assets=text)
    assert refusal(root).startswith(f"module 'assets': {root / 'assets.py'}:3: partition 'date': ")


def test_a_module_that_shares_its_name_with_one_of_python_is_told_apart(make: Make) -> None:
    root = make(types=asset("a"))
    message = refusal(root)
    assert "names the module 'types', but Python has another of that name: " in message
    assert message.endswith("; rename yours")


def test_a_module_that_shares_its_name_with_a_built_in_is_told_apart(make: Make) -> None:
    assert "but Python has another of that name: " in refusal(make(sys=asset("a")))


def test_an_installed_module_may_be_named(make: Make) -> None:
    assert "its modules (json) declare no assets; put @asset on a function" in refusal(
        make(toml="modules = ['json']")
    )


def test_a_module_without_assets_is_told_what_to_write(make: Make) -> None:
    root = make(empty="x = 1\n", other="")
    assert refusal(root) == (
        f"{root / 'servo.toml'}: its modules (empty, other) declare no assets; put @asset on a"
        " function in one of them"
    )


def test_an_unknown_upstream_is_reported_when_loading(make: Make) -> None:
    root = make(assets=asset("orders") + asset("b", arguments="deps=['order']"))
    assert "did you mean" in refusal(root)


# Which assets


def test_assets_of_packages_are_found(make: Make) -> None:
    root = make(
        toml="modules = ['shop.raw', 'shop.clean']",
        shop____init__="",
        shop__raw=asset("a"),
        shop__clean=asset("b"),
    )
    assert names(root) == ["default.a", "default.b"]


def test_assets_of_packages_without_init_are_found(make: Make) -> None:
    assert names(make(toml="modules = ['shop.raw']", shop__raw=asset("a"))) == ["default.a"]


def test_a_module_listed_twice_counts_once(make: Make) -> None:
    assert names(make(toml="modules = ['assets', 'assets']", assets=asset("a"))) == ["default.a"]


def test_an_asset_that_two_modules_hold_counts_once(make: Make) -> None:
    root = make(one=asset("a"), two="from one import a\nalias = a\n")
    assert names(root) == ["default.a"]


def test_an_asset_held_but_declared_elsewhere_is_found(make: Make) -> None:
    root = make(
        toml="modules = ['assets']",
        assets="from library import a\n",
        library=asset("a") + asset("unused"),
    )
    assert names(root) == ["default.a"]


def test_the_same_name_in_two_modules_is_refused_with_both_places(make: Make) -> None:
    root = make(one=asset("a"), two="\n" + asset("a"))
    assert refusal(root) == (
        f"asset default.a is declared twice: at {root / 'one.py'}:3 and at {root / 'two.py'}:4;"
        " rename one"
    )


def test_the_same_name_twice_in_a_module_is_refused_with_both_places(make: Make) -> None:
    root = make(assets=asset("a") + asset("a"))
    file = root / "assets.py"
    assert f"asset default.a is declared twice: at {file}:3 and at {file}:8" in refusal(root)


def test_the_same_name_in_two_namespaces_is_two_assets(make: Make) -> None:
    root = make(one=asset("a"), two=asset("a", arguments="namespace='raw'"))
    assert names(root) == ["default.a", "raw.a"]


LOOP = """
from servo import asset

for name in {names}:
    @asset(name=name)
    def make(): ...
"""


def test_assets_made_in_a_loop_are_all_found(make: Make) -> None:
    root = make(assets=LOOP.format(names=["a", "b", "c"]))
    assert names(root) == ["default.a", "default.b", "default.c"]


def test_a_loop_that_repeats_a_name_is_told_what_to_do(make: Make) -> None:
    root = make(assets=LOOP.format(names=["a", "a"]))
    assert refusal(root) == (
        f"asset default.a is declared several times at {root / 'assets.py'}:5; give each its own"
        " name, like @asset(name=f'orders_{country}')"
    )


FACTORY = """
from servo import asset

def make(table):
    @asset(name=table)
    def load():
        return table
    return load
"""


def test_assets_of_a_factory_belong_to_the_module_that_calls_it(make: Make) -> None:
    root = make(
        toml="modules = ['assets']",
        factory=FACTORY + "\nmake('not_listed')\n",
        assets="from factory import make\n\nall_of_them = [make(name) for name in ('a', 'b')]\n",
    )
    assert names(root) == ["default.a", "default.b"]


def test_an_asset_beneath_another_decorator_is_found(make: Make) -> None:
    text = "import functools\n" + asset("a").replace("@asset", "@functools.cache\n@asset")
    assert names(make(assets=text)) == ["default.a"]


def test_assets_made_of_lambdas_are_found(make: Make) -> None:
    root = make(assets="from servo import asset\nthree = asset(name='three')(lambda: 3)\n")
    assert names(root) == ["default.three"]


@pytest.mark.parametrize(
    "thing", ["functools.partial(int, 3)", "Callable()", "Callable", "print", "'orders'"]
)
def test_an_asset_of_something_else_is_told_with_the_line(make: Make, thing: str) -> None:
    text = "import functools\nfrom servo import asset\n\nclass Callable:\n    def __call__(self): ...\n"
    root = make(assets=f"{text}\nasset(name='a')({thing})\n")
    assert refusal(root).startswith(
        f"module 'assets': {root / 'assets.py'}:7: @asset goes on a function, not on "
    )


# Code versions


def version(make: Make, text: str, folder: str = "project") -> str:
    (found,) = load(make(folder, toml="modules = ['assets']", assets=text)).manifest.assets
    assert re.fullmatch("sha256:[0-9a-f]{64}", found.code_version)
    return found.code_version


BODY = asset("a", "x = 1\n    return x")


@pytest.mark.parametrize(
    "same",
    [
        pytest.param("\n\n# moved down\n" + BODY, id="other line"),
        pytest.param(BODY.replace("x = 1\n", "x = 1   \n"), id="trailing space"),
        pytest.param(BODY + "\n\n\n", id="trailing lines"),
        pytest.param(BODY.replace("\n", "\r\n"), id="line ends"),
        pytest.param(BODY.replace("@asset()", "@asset"), id="brackets"),
        pytest.param(
            BODY.replace("@asset()", "@asset(\n    owners=['me'],\n    tags={'a': 'b'},\n)"),
            id="declaration",
        ),
        pytest.param(
            BODY.replace("from servo import asset", "import servo as s").replace(
                "@asset", "@s.asset"
            ),
            id="import",
        ),
        pytest.param(
            "if True:\n    " + BODY.strip().replace("\n", "\n    "),
            id="indented",
        ),
    ],
)
def test_the_code_version_does_not_change_with(make: Make, same: str) -> None:
    assert version(make, same) == version(make, BODY)


@pytest.mark.parametrize(
    "other",
    [
        pytest.param(BODY.replace("x = 1", "x = 2"), id="body"),
        pytest.param(BODY.replace("a()", "a(y=1)"), id="parameters"),
        pytest.param(BODY.replace("x = 1", "x = '''\n'''"), id="string"),
        pytest.param(
            "import functools\n" + BODY.replace("def", "@functools.cache\ndef"), id="wrap"
        ),
    ],
)
def test_the_code_version_changes_with_the(make: Make, other: str) -> None:
    assert version(make, other) != version(make, BODY)


@pytest.mark.parametrize("quotes", ['"""', 'f"""'])
def test_trailing_space_inside_a_string_is_code(make: Make, quotes: str) -> None:
    def text(space: str) -> str:
        return asset("a", f'return {quotes}one{space}\n  \n   two"""')

    assert version(make, text("")) != version(make, text("  "))


def test_the_code_version_is_the_same_in_another_folder(make: Make) -> None:
    assert version(make, BODY, "here") == version(make, BODY, "and/there")


def test_the_code_version_is_this_one(make: Make) -> None:
    # A golden value: a Python or a Servo that finds another would make every asset stale.
    assert version(make, BODY) == (
        "sha256:9679f652a3614d9193665f3a1f1023d1df31cce400e18807e8316f1963c25de3"
    )


def test_a_function_without_a_file_is_refused(make: Make) -> None:
    text = "from servo import asset\nexec('@asset\\ndef a(): ...')\n"
    assert refusal(make(assets=text)) == (
        "asset 'a': its source cannot be read; declare it in a file"
    )


# Several projects in one process


def definition(root: Path) -> AssetDefinition:
    (found,) = load(root).manifest.assets
    return found


def test_two_projects_with_modules_of_the_same_name_do_not_mix(make: Make) -> None:
    first = make("first", toml="modules = ['assets']", assets=asset("a"), helper="")
    second = make("second", toml="modules = ['assets']", assets="import helper\n" + asset("b"))
    (second / "helper.py").write_text("")
    assert [names(root) for root in (first, second, first)] == [
        ["default.a"],
        ["default.b"],
        ["default.a"],
    ]
    code = definition(second).code
    assert code is not None and code.file == "assets.py"
    assert sys.modules["helper"].__file__ == str(second / "helper.py")


def test_two_projects_with_packages_of_the_same_name_do_not_mix(make: Make) -> None:
    first = make("first", toml="modules = ['shop.assets']", shop__assets=asset("a"))
    second = make("second", toml="modules = ['shop.assets']", shop__assets=asset("b"))
    assert names(first) + names(second) == ["default.a", "default.b"]


def test_a_project_loaded_again_is_read_again(make: Make) -> None:
    assert names(make(assets=asset("a"))) == ["default.a"]
    assert names(make(assets=asset("b"))) == ["default.b"]


def test_a_project_that_was_broken_is_read_again(make: Make) -> None:
    refusal(make(toml="modules = ['assets']", assets="import helper\n1 / 0\n", helper="x = 1\n"))
    text = "from helper import y\n" + asset("a")
    assert names(make(toml="modules = ['assets']", assets=text, helper="y = 1\n")) == ["default.a"]


def test_the_search_path_holds_one_project_at_a_time(make: Make) -> None:
    first, second = make("first", assets=asset("a")), make("second", assets=asset("b"))
    before = [*sys.path]
    load(first)
    load(second)
    assert sys.path == [str(second), *before]


def test_what_a_project_did_not_import_stays(make: Make, tmp_path: Path) -> None:
    first = make("first", toml="modules = ['assets']", assets="import colorsys\n" + asset("a"))
    second = make("second", assets=asset("b"))
    load(first)
    library: Any = sys.modules["colorsys"]
    load(second)
    assert sys.modules["colorsys"] is library


def test_a_module_that_the_caller_has_imported_keeps_its_identity(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = make(assets=asset("a"))
    monkeypatch.syspath_prepend(str(root))
    mine = importlib.import_module("assets")
    load(root)
    load(root)
    assert importlib.import_module("assets") is mine


def test_a_module_that_the_caller_has_imported_from_elsewhere_is_told_apart(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = make("first", assets=asset("a")), make("second", assets=asset("b"))
    monkeypatch.syspath_prepend(str(first))
    importlib.import_module("assets")
    assert f"another of that name: {first / 'assets.py'}; rename yours" in refusal(second)


# Paths


def test_a_relative_folder_is_resolved(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make(assets=asset("a"))
    monkeypatch.chdir(root.parent)
    loaded = load(Path("project"))
    code = loaded.manifest.assets[0].code
    assert loaded.root == root
    assert code is not None and code.file == "assets.py"


def test_a_folder_with_spaces_and_letters_of_the_world_works(make: Make) -> None:
    assert names(make("mes données/été 🎈", assets=asset("a"))) == ["default.a"]


def test_a_folder_whose_name_is_not_utf8_works(make: Make) -> None:
    assert names(make(os.fsdecode(b"caf\xe9"), assets=asset("a"))) == ["default.a"]


def test_a_link_to_a_folder_is_the_folder(make: Make, tmp_path: Path) -> None:
    root = make(assets=asset("a"))
    (tmp_path / "link").symlink_to(root)
    one, two = load(tmp_path / "link"), load(root)
    assert (one.root, one.manifest) == (two.root, two.manifest)


def test_a_link_to_a_module_works(make: Make, tmp_path: Path) -> None:
    root = make(toml="modules = ['assets']")
    (tmp_path / "real.py").write_text(asset("a"))
    (root / "assets.py").symlink_to(tmp_path / "real.py")
    assert names(root) == names(root) == ["default.a"]


def test_a_project_inside_site_packages_is_still_a_project(make: Make) -> None:
    assert names(make("lib/site-packages/shop", assets=asset("a"))) == ["default.a"]


def test_loading_leaves_the_file_beside_it_alone(make: Make) -> None:
    root = make(assets=asset("a"))
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    load(root)
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before


# What cannot run


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def a(day): ...", "its function wants day, and"),
        ("def a(*, day, hour): ...", "its function wants day, hour, and"),
        ("def a():\n    yield 1", "its function has a yield, and calling it would run none"),
        ("async def a():\n    yield 1", "its function has a yield, and calling it would run none"),
    ],
)
def test_a_function_that_would_not_run_is_refused(text: str, said: str, make: Make) -> None:
    loaded = load(make(assets=f"from servo import asset\n\n@asset\n{text}\n"))
    with pytest.raises(Invalid, match=f"asset default.a cannot run: {said}"):
        loaded.check_runs(["default/a"])


@pytest.mark.parametrize(
    "text",
    ["def a(*args, day=1, **options): ...", "async def a(): ...", "def a(): return iter([])"],
)
def test_a_function_that_can_be_called_may_run(text: str, make: Make) -> None:
    load(make(assets=f"from servo import asset\n\n@asset\n{text}\n")).check_runs(["default/a"])


def test_settings_are_those_of_the_docstring() -> None:
    assert project.__doc__ is not None
    for name in project.Settings.__struct_fields__:
        assert f"    {name} = " in project.__doc__
