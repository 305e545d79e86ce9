"""Laws of identity, on random values: keys, canonical JSON, ids, manifests."""

import copy
import itertools
import json
import operator
import pickle
import re
import string
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from urllib.parse import unquote

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from servo.core import canonical, ids
from servo.core.definitions import (
    AssetDefinition,
    CheckDefinition,
    CodeLocation,
    Dependency,
    Manifest,
    dump,
    load,
)
from servo.core.ids import UlidSource
from servo.core.keys import (
    AssetKey,
    Operation,
    PartitionKey,
    Scalar,
    TaskKey,
    parse_scalar,
    partition_id,
    spell_scalar,
)
from servo.core.plain import from_plain, to_plain, user_data
from servo.core.policies import RetryPolicy
from servo.errors import Invalid

# ---------------------------------------------------------------- what is drawn

INT64 = st.integers(-(2**63), 2**63 - 1) | st.sampled_from([-(2**63), -1, 0, 1, 2**63 - 1])
# Every character that UTF-8 can carry, and often those that mean something in a spelling.
TEXTS = (
    st.text(max_size=12)
    | st.text(alphabet=",=:[]/%.+-~_ \n\x00\u00e9\u0301\u4f60\U0001f600s", max_size=12)
    | st.sampled_from(["", "null", "true", "1", "s:a", "%20", "2025-01-15", "\uffff", "\ufeff"])
)
OFFSETS = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
# A day from both ends, so that no offset leads out of the calendar.
TIMES = st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=OFFSETS)
SCALARS: st.SearchStrategy[Scalar] = st.one_of(
    TEXTS, INT64, st.booleans(), st.dates(), st.datetimes(timezones=st.just(UTC)), TIMES, st.none()
)
NAMES = st.builds(
    operator.add, st.sampled_from(string.ascii_letters + "_"), st.text("aZ_09", max_size=3)
)
PARTS = st.builds(
    operator.add, st.sampled_from(string.ascii_lowercase), st.text("az_09", max_size=3)
)

PARTITION_KEYS = st.dictionaries(NAMES, SCALARS, min_size=1, max_size=4).map(PartitionKey)
ASSET_KEYS = st.builds(AssetKey, PARTS, PARTS)
TASK_KEYS = st.builds(TaskKey, ASSET_KEYS, PARTITION_KEYS | st.none(), st.sampled_from(Operation))
KEYS: st.SearchStrategy[Any] = ASSET_KEYS | PARTITION_KEYS | TASK_KEYS


def nested(leaves: st.SearchStrategy[Any], keys: st.SearchStrategy[str] = TEXTS) -> Any:
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=12,
    )


PLAIN = nested(st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXTS)
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
USERS = nested(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | TEXTS | FLOATS,
    TEXTS.filter(lambda key: key != "$float"),
)


def same(a: Any, b: Any) -> bool:
    """Equal with their types: not 1 == True == 1.0, nor 0.0 == -0.0."""
    return json.dumps(a, sort_keys=True) == json.dumps(b, sort_keys=True)


# ---------------------------------------------------------------- keys: one spelling each


@given(KEYS)
def test_key_parses_back_from_its_text(key: Any) -> None:
    again = type(key).parse(str(key))
    assert again == key
    assert hash(again) == hash(key)
    assert str(again) == str(key)


@given(KEYS)
def test_key_parses_back_from_its_canonical_string(key: Any) -> None:
    assert type(key).parse(key.canonical) == key


@given(SCALARS)
def test_value_comes_back_with_its_type(value: Scalar) -> None:
    again = PartitionKey.parse(str(PartitionKey(x=value)))["x"]
    assert (type(again), again) == (type(value), value)


@given(SCALARS, SCALARS)
@example(True, 1)
@example(False, 0)
@example("1", 1)
@example(date(2025, 1, 15), datetime(2025, 1, 15, tzinfo=UTC))
@example("\u00e9", "e\u0301")
def test_keys_are_equal_exactly_if_type_and_value_are(a: Scalar, b: Scalar) -> None:
    assert (PartitionKey(x=a) == PartitionKey(x=b)) == (type(a) is type(b) and a == b)


@given(st.dictionaries(NAMES, SCALARS, min_size=1, max_size=5), st.randoms(use_true_random=False))
def test_order_of_dimensions_does_not_matter(values: dict[str, Scalar], random: Any) -> None:
    shuffled = list(values.items())
    random.shuffle(shuffled)
    assert PartitionKey(dict(shuffled)) == PartitionKey(**values)


@given(TIMES, OFFSETS)
def test_zone_of_a_timestamp_does_not_matter(at: datetime, zone: timezone) -> None:
    assert PartitionKey(x=at) == PartitionKey(x=at.astimezone(zone))


@given(PARTITION_KEYS)
def test_spelling_has_only_characters_that_are_safe_everywhere(key: PartitionKey) -> None:
    assert re.fullmatch(r"[A-Za-z0-9_.~%:=,-]+", str(key))


@given(TEXTS)
def test_string_is_percent_encoded_as_everybody_else_decodes_it(text: str) -> None:
    assert unquote(spell_scalar(text)[2:], errors="strict") == text


@given(st.lists(KEYS, max_size=4))
def test_order_is_that_of_canonical_strings(keys: list[Any]) -> None:
    for kind in (AssetKey, PartitionKey, TaskKey):
        ours = [key for key in keys if type(key) is kind]
        assert [k.canonical for k in sorted(ours)] == sorted(k.canonical for k in ours)


@given(KEYS, KEYS)
def test_comparisons_agree_with_each_other(a: Any, b: Any) -> None:
    if type(a) is type(b):
        assert (a < b, a <= b, a > b, a >= b, a == b) == (
            a.canonical < b.canonical,
            a.canonical <= b.canonical,
            a.canonical > b.canonical,
            a.canonical >= b.canonical,
            a.canonical == b.canonical,
        )


@given(KEYS)
def test_keys_survive_pickling_and_copying(key: Any) -> None:
    pickled = pickle.loads(pickle.dumps(key))  # noqa: S301 - our own bytes
    for again in (pickled, copy.copy(key), copy.deepcopy(key)):
        assert again == key
        assert again.canonical == key.canonical


def parses_only_to_itself(kind: Any, text: str) -> None:
    """Either refused, or a key whose one spelling this is."""
    try:
        key = kind.parse(text)
    except Invalid as why:
        assert str(why).isprintable() or not text.isprintable()
        return
    spelled = key.canonical if kind is not AssetKey else key.canonical.replace("/", ".")
    assert spelled == (text if kind is not AssetKey else text.replace("/", "."))


CHARACTERS = st.characters() | st.sampled_from(
    string.printable + "\u0660\u0661\uff10\uff11\u00a0\u2028\ufeff\ud800"
)


# Something small that is done to a spelling, at a place, with a character.
MUTATIONS: list[Callable[[str, int, str], str]] = [
    lambda text, at, char: text[:at] + char + text[at:],
    lambda text, at, char: text[:at] + char + text[at + 1 :],
    lambda text, at, char: text[:at] + text[at + 1 :],
    lambda text, at, char: text[:at] + text[at].swapcase() + text[at + 1 :],
    lambda text, at, char: text[: at + 1] + text[at:],
    lambda text, at, char: text[:at],
    lambda text, at, char: text[at:],
    lambda text, at, char: text[at:] + text[:at],
    lambda text, at, char: text[:at] + f"%{ord(text[at]):02X}" + text[at + 1 :],
    lambda text, at, char: text + char,
    lambda text, at, char: char + text,
    lambda text, at, char: f"{text},{text}",
    lambda text, at, char: ",".join(reversed(text.split(","))),
    lambda text, at, char: text.replace(":", ":0", 1),
    lambda text, at, char: text.replace(":", ":+", 1),
    lambda text, at, char: text.replace("Z", "+00:00"),
    lambda text, at, char: text.replace("%", "%25"),
    lambda text, at, char: text.replace("%", ""),
    lambda text, at, char: text.upper(),
    lambda text, at, char: text.lower(),
    lambda text, at, char: f"{text}\n",
]


@given(KEYS, st.integers(0, 200), CHARACTERS)
@settings(max_examples=150)
def test_mutated_spelling_is_refused_or_is_another_keys_only_spelling(
    key: Any, at: int, char: str
) -> None:
    text = key.canonical
    for mutate in MUTATIONS:
        parses_only_to_itself(type(key), mutate(text, at % len(text), char))


@given(st.sampled_from([AssetKey, PartitionKey, TaskKey]), st.text(max_size=30))
def test_any_text_is_refused_or_is_a_keys_only_spelling(kind: Any, text: str) -> None:
    parses_only_to_itself(kind, text)


@given(st.sampled_from("sibdtn"), st.text(alphabet="0123456789-+:.TZ%aAtrufelsn \n", max_size=28))
@settings(max_examples=300)
def test_tagged_text_is_refused_or_is_a_values_only_spelling(tag: str, body: str) -> None:
    spelled = f"{tag}:{body}"
    try:
        value = parse_scalar(spelled)
    except Invalid:
        return
    assert spell_scalar(value) == spelled


@given(st.integers(), st.integers(0, 9))
def test_integer_parses_exactly_if_it_fits_and_has_no_leading_zeros(n: int, zeros: int) -> None:
    sign, digits = ("-", str(n)[1:]) if n < 0 else ("", str(n))
    fits = -(2**63) <= n < 2**63 and zeros == 0
    try:
        assert PartitionKey.parse(f"x=i:{sign}{'0' * zeros}{digits}")["x"] == n
        assert fits
    except Invalid:
        assert not fits


@given(st.integers(0, 10_000), st.integers(0, 13), st.integers(0, 32))
@example(2024, 2, 29)
@example(1900, 2, 29)
@example(2000, 2, 29)
def test_date_parses_exactly_if_it_is_in_the_calendar(year: int, month: int, day: int) -> None:
    try:
        real: date | None = date(year, month, day)
    except ValueError:
        real = None
    try:
        assert PartitionKey.parse(f"x=d:{year:04}-{month:02}-{day:02}")["x"] == real
    except Invalid:
        assert real is None


# ---------------------------------------------------------------- canonical JSON


@given(PLAIN)
def test_canonical_json_reads_back_as_the_same_data(value: Any) -> None:
    assert same(json.loads(canonical.dumps(value)), value)


@given(PLAIN)
def test_canonical_json_is_what_the_standard_library_writes(value: Any) -> None:
    expected = json.dumps(value, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    assert canonical.dumps(value) == expected.encode()


def reversed_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: reversed_keys(value[key]) for key in reversed(value)}
    return [reversed_keys(item) for item in value] if isinstance(value, list) else value


@given(PLAIN)
def test_order_of_keys_does_not_enter_the_bytes(value: Any) -> None:
    assert canonical.dumps(reversed_keys(value)) == canonical.dumps(value)
    assert canonical.fingerprint(reversed_keys(value)) == canonical.fingerprint(value)


@given(PLAIN, PLAIN)
@example([True], [1])
@example([0], [False])
@example("1", 1)
@example({}, [])
@example(None, "null")
def test_different_data_has_different_fingerprints(a: Any, b: Any) -> None:
    assert (canonical.fingerprint(a) == canonical.fingerprint(b)) == same(a, b)


# Short enough that no message needs to shorten them.
STEPS = st.lists(st.integers(0, 3) | st.text(max_size=3), max_size=10)


@given(STEPS, st.floats())
def test_float_is_refused_anywhere_with_its_path(steps: list[int | str], number: float) -> None:
    value: Any = number
    for step in reversed(steps):
        if isinstance(step, int):
            value = [*([None] * step), value]
        else:
            value = {f"{step} before": 1, step: value}
    with pytest.raises(Invalid) as refusal:
        canonical.dumps(value)
    path = "".join(
        f"[{step}]"
        if isinstance(step, int)
        else f".{step}"
        if step.isidentifier()
        else f"[{step!r}]"
        for step in steps
    )
    assert str(refusal.value).startswith(f"canonical JSON: ${path} is the float {number!r};")


@given(nested(st.none() | st.integers() | st.floats() | st.text(st.characters()) | st.binary()))
def test_canonical_json_gives_bytes_or_one_sentence(value: Any) -> None:
    try:
        canonical.dumps(value).decode()
    except Invalid as why:
        assert str(why).startswith("canonical JSON: ")
        assert "\n" not in str(why)


@given(FLOATS)
def test_carried_float_comes_back_exactly(number: float) -> None:
    assert repr(canonical.read_float(canonical.carry_float(number)["$float"])) == repr(number)


@given(st.text(alphabet="0123456789.eE+-_ naif", max_size=12))
def test_float_text_is_refused_or_is_the_only_spelling(text: str) -> None:
    try:
        number = canonical.read_float(text)
    except Invalid:
        return
    assert canonical.carry_float(number) == {"$float": text}


# ---------------------------------------------------------------- ids


@given(
    st.lists(st.integers(0, 2**48 - 2**10), min_size=1, max_size=60),
    st.lists(st.integers(0, 2**80 - 1) | st.integers(2**80 - 3, 2**80 - 1), min_size=1),
)
def test_ulids_only_grow_whatever_the_clock_does(times: list[int], randomness: list[int]) -> None:
    clock = iter(times)
    draws = iter(randomness * len(times) * 2)
    make = UlidSource(lambda: next(clock), lambda bits: next(draws))
    made = [make() for _ in times]
    assert all(a < b for a, b in itertools.pairwise(made))
    assert [ids.parse_ulid(ulid) for ulid in made] == made


@given(st.integers(-3, 3), st.integers(1, 50))
@settings(max_examples=10)
def test_ulids_of_eight_threads_are_all_different_and_grow_in_each(drift: int, each: int) -> None:
    now = [1_000_000]

    def clock() -> int:
        now[0] += drift
        return now[0]

    # Randomness at its end: nearly every id borrows a millisecond.
    make = UlidSource(clock, lambda bits: 2**bits - 2)
    with ThreadPoolExecutor(8) as pool:
        made = list(pool.map(lambda _: [make() for _ in range(each)], range(8)))
    assert all(sorted(ulids) == ulids for ulids in made)
    assert len({ulid for ulids in made for ulid in ulids}) == 8 * each


@given(st.integers(0, 2**48 - 1), st.integers(0, 2**80 - 1))
def test_ulid_holds_time_and_randomness(time: int, randomness: int) -> None:
    ulid = ids.make_ulid(time, randomness)
    assert re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Z]{25}", ulid)
    assert ids.ulid_milliseconds(ulid) == time
    assert int.from_bytes(ids.ulid_bytes(ulid), "big") == (time << 80) + randomness
    assert ids.parse_ulid(ulid.lower()) == ulid


@given(st.integers(0, 2**128 - 1), st.integers(0, 2**128 - 1))
def test_ulids_sort_as_the_numbers_they_are(a: int, b: int) -> None:
    assert (ids.base32_encode(a, 26) < ids.base32_encode(b, 26)) == (a < b)


@given(st.text(max_size=30))
def test_any_text_is_a_ulid_or_refused(text: str) -> None:
    try:
        assert ids.parse_ulid(text) == text.upper()
    except Invalid:
        assert not re.fullmatch(r"[0-7][0-9A-HJKMNP-TV-Za-hjkmnp-tv-z]{25}", text)


@given(st.sampled_from(string.ascii_lowercase), TEXTS)
def test_queue_id_is_a_name_that_any_queue_takes(kind: str, internal_id: str) -> None:
    made = ids.queue_id(kind, internal_id)
    assert re.fullmatch(r"[a-z]_[a-z2-7]{26}", made)
    assert made[0] == kind
    assert ids.queue_id(kind, internal_id) == made


@given(TEXTS, TEXTS)
def test_different_internal_ids_have_different_queue_ids(a: str, b: str) -> None:
    assert (ids.queue_id("d", a) == ids.queue_id("d", b)) == (a == b)


@given(PARTITION_KEYS)
def test_folder_of_a_partition_is_a_queue_id(key: PartitionKey) -> None:
    assert partition_id(key) == ids.queue_id("p", key.canonical)


# ---------------------------------------------------------------- definitions


DATA = st.dictionaries(TEXTS.filter(lambda key: key != "$float"), USERS, max_size=3)
CHECKS = st.builds(
    CheckDefinition,
    name=TEXTS,
    kind=TEXTS,
    parameters=DATA,
    code=st.none() | st.builds(CodeLocation, module=TEXTS, function=TEXTS, line=INT64),
)
ASSETS = st.builds(
    AssetDefinition,
    key=ASSET_KEYS,
    description=TEXTS,
    owners=st.lists(TEXTS, max_size=3).map(tuple),
    tags=st.dictionaries(TEXTS.filter(lambda key: key != "$float"), TEXTS, max_size=3),
    dependencies=st.lists(st.builds(Dependency, upstream=ASSET_KEYS), max_size=3).map(tuple),
    checks=st.lists(CHECKS, max_size=2, unique_by=lambda check: check.name).map(tuple),
    retry=st.builds(RetryPolicy, multiplier=st.floats(1, 1e300)),
    priority=st.integers(-1_000_000, 1_000_000),
    config=DATA,
    metadata=DATA,
    renamed_from=st.none() | ASSET_KEYS,
)


@given(USERS)
def test_user_data_reads_back_as_the_same_thing(value: Any) -> None:
    kept = user_data(value, "config")
    assert same(kept, value)
    text = canonical.dumps(to_plain(kept))
    assert same(from_plain(json.loads(text), Any, "config"), kept)


@given(st.lists(ASSETS, max_size=3, unique_by=lambda asset: asset.key))
@settings(max_examples=40)
def test_manifest_round_trips_and_does_not_depend_on_order(assets: list[AssetDefinition]) -> None:
    manifest = Manifest(assets=tuple(assets))
    text = dump(manifest)
    assert load(text) == manifest
    assert dump(load(text)) == text
    assert dump(Manifest(assets=tuple(reversed(assets)))) == text


def loads_or_says_why(text: bytes) -> None:
    try:
        load(text)
    except Invalid as why:
        assert "\n" not in str(why)


GOOD = dump(
    Manifest(
        assets=(
            AssetDefinition(
                key=AssetKey("a", "b"),
                dependencies=(Dependency(upstream=AssetKey("a", "c")),),
                checks=(CheckDefinition(name="n", kind="k", parameters={"x": 0.5}),),
            ),
        )
    )
)


@given(st.binary(max_size=200))
def test_hostile_bytes_give_nothing_but_invalid(text: bytes) -> None:
    loads_or_says_why(text)


@given(st.integers(0, len(GOOD)), st.integers(0, 6), st.binary(max_size=6))
@settings(max_examples=300)
def test_damaged_manifest_gives_nothing_but_invalid(at: int, cut: int, put: bytes) -> None:
    loads_or_says_why(GOOD[:at] + put + GOOD[at + cut :])


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inside: Any = ()
    if isinstance(value, dict):
        inside = value.items()
    elif isinstance(value, list):
        inside = enumerate(value)
    return [path, *(place for key, item in inside for place in places(item, (*path, key)))]


PLACES = places(json.loads(GOOD))
ANYTHING = nested(st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5))


@given(st.sampled_from(PLACES), ANYTHING)
@settings(max_examples=300)
@example((), {"schema_version": 1, "assets": {"$float": "1"}})
@example(("assets", 0, "key"), {"$float": "0.5"})
@example(("assets", 0, "metadata"), {"$float": "x"})
def test_any_value_in_any_place_gives_nothing_but_invalid(
    place: tuple[Any, ...], value: Any
) -> None:
    data = json.loads(GOOD)
    if not place:
        data = value
    else:
        at = data
        for key in place[:-1]:
            at = at[key]
        at[place[-1]] = value
    loads_or_says_why(json.dumps(data).encode())
