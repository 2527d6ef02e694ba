from __future__ import annotations

from datetime import date

import pyarrow as pa
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from streaming_lsm.errors import ConfigError, RecordError, SchemaError
from streaming_lsm.keys.generator import KeyGenerator

DAY = {
    "hoodie.keygen.timebased.timestamp.type": "UNIX_TIMESTAMP",
    "hoodie.keygen.timebased.output.dateformat": "yyyy/MM/dd",
}
DEFAULT = "__HIVE_DEFAULT_PARTITION__"


def batch(**columns: object) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def simple(**changes: bool) -> KeyGenerator:
    return KeyGenerator.from_config("SIMPLE", ["id"], [("p", "SIMPLE")], **changes)


def paths(values: list[object], **changes: bool) -> list[str]:
    return simple(**changes).partition_paths(batch(id=list(range(len(values))), p=values)).to_pylist()


def test_single_key_is_the_value_itself() -> None:
    assert simple().record_keys(batch(id=[1, -2], p=["a", "b"])).to_pylist() == ["1", "-2"]


@pytest.mark.parametrize("kind", ["COMPLEX", "NON_PARTITION", "CUSTOM"])
def test_several_key_columns_make_composite_keys(kind: str) -> None:
    generator = KeyGenerator.from_config(kind, ["a", "b"], [])
    keys = generator.record_keys(batch(a=["x", None, ""], b=[1, 2, 3]))
    assert keys.to_pylist() == ["a:x,b:1", "a:__null__,b:2", "a:__empty__,b:3"]


def test_complex_generator_names_even_a_single_column() -> None:
    assert KeyGenerator.from_config("COMPLEX", ["id"], []).record_keys(batch(id=["x"])).to_pylist() == ["id:x"]


@pytest.mark.parametrize("kind", ["NON_PARTITION", "CUSTOM"])
def test_other_generators_leave_a_single_column_bare(kind: str) -> None:
    assert KeyGenerator.from_config(kind, ["id"], []).record_keys(batch(id=["x"])).to_pylist() == ["x"]


@pytest.mark.parametrize("bad", [None, ""])
def test_missing_single_key_is_refused_with_row_and_column(bad: str | None) -> None:
    with pytest.raises(RecordError, match=r"row 1 .*'id'"):
        simple().record_keys(batch(id=["a", bad], p=["x", "y"]))


def test_composite_key_without_any_value_is_refused_with_its_row() -> None:
    generator = KeyGenerator.from_config("COMPLEX", ["a", "b"], [])
    with pytest.raises(RecordError, match=r"row 2 .*a, b"):
        generator.record_keys(batch(a=["x", None, None], b=[None, "y", ""]))


def test_missing_column_is_refused_by_name() -> None:
    with pytest.raises(SchemaError, match="'p' is missing"):
        simple().partition_paths(batch(id=[1]))


def test_unsupported_key_type_is_refused_by_column_and_type() -> None:
    with pytest.raises(SchemaError, match=r"'id'.*binary"):
        simple().record_keys(batch(id=[b"x"], p=["a"]))


def test_nested_columns_are_reached_by_dots() -> None:
    generator = KeyGenerator.from_config("SIMPLE", ["k.id"], [("k.p", "SIMPLE")], hive_style=True)
    rows = batch(k=[{"id": 7, "p": "x"}])
    assert generator.record_keys(rows).to_pylist() == ["7"]
    assert generator.partition_paths(rows).to_pylist() == ["k.p=x"]
    with pytest.raises(SchemaError, match="'q'"):
        KeyGenerator.from_config("NON_PARTITION", ["k.q"], []).record_keys(rows)


def test_partition_paths_keep_one_entry_per_path() -> None:
    array = simple().partition_paths(batch(id=[1, 2, 3, 4], p=["a", None, "", "a"]))
    assert array.to_pylist() == ["a", DEFAULT, DEFAULT, "a"]
    assert array.type == pa.dictionary(pa.int32(), pa.string())
    assert sorted(array.dictionary.to_pylist()) == [DEFAULT, "a"]


def test_zero_and_negative_zero_are_different_partitions() -> None:
    assert paths([0.0, -0.0, 0.0]) == ["0.0", "-0.0", "0.0"]


def test_hive_style_and_url_encoding() -> None:
    assert paths(["a/b", None], hive_style=True) == ["p=a/b", f"p={DEFAULT}"]
    assert paths(["a/b", "é :"], hive_style=True, url_encode=True) == ["p=a%2Fb", "p=é %3A"]
    assert paths([date(2024, 1, 2)]) == ["2024-01-02"]


def test_several_partition_columns_make_levels() -> None:
    generator = KeyGenerator.from_config("COMPLEX", ["id"], [("p", "SIMPLE"), ("q", "SIMPLE")], hive_style=True)
    array = generator.partition_paths(batch(id=[1, 2, 3], p=["a", "b", "a"], q=[1, None, 1]))
    assert array.to_pylist() == ["p=a/q=1", f"p=b/q={DEFAULT}", "p=a/q=1"]
    assert len(array.dictionary) == 2


def test_unpartitioned_table_has_the_empty_path() -> None:
    array = KeyGenerator.from_config("NON_PARTITION", ["id"], []).partition_paths(batch(id=[1, 2]))
    assert array.to_pylist() == ["", ""]


def test_custom_generator_mixes_simple_and_timestamp_columns() -> None:
    generator = KeyGenerator.from_config(
        "CUSTOM", ["id"], [("p", "simple"), ("ts", "timestamp")], timestamp_options=DAY
    )
    assert generator.partition_paths(batch(id=[1], p=["eu"], ts=[86_400])).to_pylist() == ["eu/1970/01/02"]


def test_timestamp_generator_escapes_its_text_when_encoding() -> None:
    generator = KeyGenerator.from_config(
        "TIMESTAMP", ["id"], [("ts", "SIMPLE")], timestamp_options=DAY, hive_style=True, url_encode=True
    )
    assert generator.partition_paths(batch(id=[1], ts=[0])).to_pylist() == ["ts=1970%2F01%2F01"]


@pytest.mark.parametrize("value", ["..", "../../etc", "/etc", ".", "a//b", "a\0", ".hoodie", "x/.hoodie/y"])
def test_values_that_leave_the_table_are_refused_with_row_column_and_value(value: str) -> None:
    with pytest.raises(RecordError) as caught:
        paths(["ok", value])
    assert "row 1" in str(caught.value)
    assert "'p'" in str(caught.value)
    assert repr(value) in str(caught.value)


def test_slashes_make_nested_folders() -> None:
    assert paths(["2020/01/02"]) == ["2020/01/02"]


def test_parent_folder_is_refused_even_when_encoding() -> None:
    with pytest.raises(RecordError, match="leaves the table"):
        paths([".."], url_encode=True)


def test_dictionary_columns_and_slices_give_the_same_paths() -> None:
    rows = batch(id=[1, 2, 3, 4], p=["..", "a", "b", "a"])
    encoded = pa.record_batch([rows["id"], rows["p"].dictionary_encode()], ["id", "p"])
    assert simple().partition_paths(encoded.slice(1)).to_pylist() == ["a", "b", "a"]
    assert simple().record_keys(encoded.slice(1)).to_pylist() == ["2", "3", "4"]


def test_empty_batch_gives_empty_arrays() -> None:
    empty = pa.RecordBatch.from_pydict({"id": pa.array([], pa.int64()), "p": pa.array([], pa.string())})
    assert len(simple().record_keys(empty)) == 0
    assert len(simple().partition_paths(empty)) == 0


@pytest.mark.parametrize(
    ("kind", "keys", "parts", "message"),
    [
        ("GLOBAL_DELETE", ["id"], [], "GLOBAL_DELETE: not supported"),
        ("SIMPLE", ["a", "b"], [("p", "SIMPLE")], "one key and one partition column"),
        ("SIMPLE", ["a"], [], "one key and one partition column"),
        ("NON_PARTITION", ["a"], [("p", "SIMPLE")], "'p'"),
        ("COMPLEX", [], [], "recordkey.field"),
        ("CUSTOM", ["a"], [("p", "RANGE")], "RANGE"),
        ("TIMESTAMP", ["a"], [("p", "SIMPLE")], "timestamp.type is not set"),
    ],
)
def test_settings_that_hudi_cannot_use_are_refused(
    kind: str, keys: list[str], parts: list[tuple[str, str]], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        KeyGenerator.from_config(kind, keys, parts)


def pair(ambiguous: str, **columns: object) -> list[str]:
    rows = batch(**columns)
    return KeyGenerator.from_config("COMPLEX", list(columns), [], ambiguous=ambiguous).record_keys(rows).to_pylist()


AMBIGUOUS_ROWS = [
    ({"a": ["x", "x"], "b": ["y", "y,b:z"]}, "'b': 'y,b:z'"),
    ({"a": ["x", "x,b:y"], "b": ["y", "z"]}, "'a': 'x,b:y'"),
    ({"a": ["x", "x\n,b:y"], "b": ["y", "z"]}, "'a'"),
    ({"a": ["x", "__null__"], "b": ["y", "z"]}, "'a': '__null__'"),
    ({"a": ["x", "x"], "b": ["y", "__empty__"]}, "'b': '__empty__'"),
    ({"a": [1, 2], "b": ["y", "__empty__"]}, "'b': '__empty__'"),
    ({"a": ["x", "x"], "b": ["y", "y"], "c": ["z", "q,c:z"]}, "'c': 'q,c:z'"),
    ({"a": ["x", "x"], "b": ["y", "y,c:q"], "c": ["z", "z"]}, "'b': 'y,c:q'"),
    ({"a": ["x", "x,n:1,b:z"], "n": [2, 2], "b": ["y", "y"]}, "'a': 'x,n:1,b:z'"),
    ({"a": ["x", "x"], "n": [1, 1], "b": ["z", "z,n:2,b:y"]}, "'b': 'z,n:2,b:y'"),
]


@pytest.mark.parametrize(("columns", "named"), AMBIGUOUS_ROWS, ids=lambda value: str(value)[:40])
def test_a_value_that_makes_a_composite_key_ambiguous_is_refused_warned_of_or_allowed(
    columns: dict[str, object], named: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(RecordError, match=rf"row 1, key column {named}.*lsm\.keys\.ambiguous=allow"):
        pair("refuse", **columns)
    assert not caplog.records
    keys = pair("allow", **columns)
    assert not caplog.records
    assert pair("warn", **columns) == keys
    assert named in caplog.text


KEY_COLUMNS = [tuple(names.split()) for names in ("a b", "a n b", "n a b", "a b c", "a n m b", "a n b c")]
PIECES = st.sampled_from(["x", ",", ":", "a", ",a:", ",b:", ",c:", ",n:1", "__empty__", "__null__", ""])
PARTS = st.sampled_from(["x", "__null__", "__empty__", ",a:x", ",b:x", ",c:x", ",n:1", ",n:2", ",m:1"])
TEXTS = st.none() | st.lists(PIECES, max_size=4).map("".join) | st.lists(PARTS, max_size=4).map("".join)
NUMBERS = st.none() | st.integers(1, 2)


def readings(columns: tuple[str, ...], text: str) -> list[tuple[object, ...]]:
    """Return every tuple of values whose composite key is `text`, by trying each place where a value may end."""
    column, *rest = columns
    head = f"{column}:"
    if not text.startswith(head):
        return []
    found: list[tuple[object, ...]] = []
    for end in range(len(head), len(text) + 1):
        if text[end : end + 1] == "," if rest else end == len(text):
            tails = readings(tuple(rest), text[end + 1 :]) if rest else [()]
            found += [(value, *tail) for value in values_of(column, text[len(head) : end]) for tail in tails]
    return found


def values_of(column: str, text: str) -> list[object]:
    special: list[object] = {"__null__": [None], "__empty__": [""]}.get(text, [])
    if column in "nm":
        return [None] if text == "__null__" else [int(text)] if text.isdigit() and str(int(text)) == text else []
    return special + [text] * (text != "")


def key_of(columns: tuple[str, ...], row: tuple[object, ...], ambiguous: str) -> str:
    types = [pa.int64() if column in "nm" else pa.string() for column in columns]
    arrays = [pa.array([value], kind) for value, kind in zip(row, types, strict=True)]
    rows = pa.RecordBatch.from_arrays(arrays, names=list(columns))
    (key,) = KeyGenerator.from_config("COMPLEX", columns, [], ambiguous=ambiguous).record_keys(rows).to_pylist()
    return str(key)


def is_refused(columns: tuple[str, ...], row: tuple[object, ...]) -> bool:
    try:
        key_of(columns, row, "refuse")
    except RecordError:
        return True
    return False


def with_placeholders(row: tuple[object, ...]) -> tuple[object, ...]:
    return tuple({None: "__null__", "": "__empty__"}.get(value, value) for value in row)


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(KEY_COLUMNS), st.data())
def test_rows_of_one_composite_key_are_refused_all_but_the_one_that_placeholders_stand_for(
    columns: tuple[str, ...], data: st.DataObject
) -> None:
    drawn = tuple(data.draw(NUMBERS if column in "nm" else TEXTS, label=column) for column in columns)
    assume(any(value not in (None, "") for value in drawn))
    key = key_of(columns, drawn, "allow")
    rows = readings(columns, key)
    assert drawn in rows
    rows = [row for row in rows if any(value not in (None, "") for value in row)]
    assert {key_of(columns, row, "allow") for row in rows} == {key}

    accepted = [row for row in rows if not is_refused(columns, row)]
    assert len(accepted) <= 1
    if len({with_placeholders(row) for row in rows}) > 1:
        assert not accepted


@pytest.mark.parametrize(
    "columns",
    [
        {"a": ["x,y", "a:b", ",a:b", "p,q:r"], "b": ["y:z,", "b:", ",", ",a:x"]},
        {"a": [None, "", "x"], "b": ["y", "y", None]},
        {"a": ["__null", "_empty__", "__NULL__"], "b": ["y", "y", "y"]},
        {"a": [1, 2], "b": ["x,b:y", ",b:"]},
        {"a": ["x,c:y"], "b": ["y"], "c": ["q,b:z"]},
        {"a": [",b:x"], "b": ["y,b:"]},
        {"a": ["__null__", "x,b:y"]},
    ],
    ids=lambda value: str(value)[:40],
)
def test_values_that_only_look_alike_are_taken(columns: dict[str, object]) -> None:
    assert pair("refuse", **columns) == pair("allow", **columns)


PIECE = st.sampled_from([",", "a", "b", "c", ":", "x", ",b:", ",c:", "__null__", "__empty__"])
PIECES = st.none() | st.lists(PIECE, max_size=4).map("".join)


@given(st.lists(st.tuples(PIECES, PIECES, PIECES), min_size=2, max_size=40, unique=True))
def test_no_two_tuples_that_are_taken_have_one_key(tuples: list[tuple[str | None, ...]]) -> None:
    taken: dict[str, tuple[str | None, ...]] = {}
    for values in tuples:
        columns = {name: pa.array([value], pa.string()) for name, value in zip("abc", values, strict=True)}
        try:
            (key,) = pair("refuse", **columns)
        except RecordError:
            continue
        assert taken.setdefault(key, values) == values


@pytest.mark.parametrize("keys", [("at",), ("name", "at")])
def test_times_of_one_millisecond_whose_texts_are_the_same_are_refused_warned_of_or_allowed(
    keys: tuple[str, ...], caplog: pytest.LogCaptureFixture
) -> None:
    def texts(micros: list[int], ambiguous: str = "refuse", zone: str | None = "UTC") -> pa.StringArray:
        names = pa.array(["x"] * len(micros))
        rows = pa.RecordBatch.from_pydict({"name": names, "at": pa.array(micros, pa.timestamp("us", zone))})
        generator = KeyGenerator.from_config("COMPLEX", keys, [], ambiguous=ambiguous, logical_timestamp=True)
        return generator.record_keys(rows)

    assert len(set(texts([0, 1000, -1000]).to_pylist())) == 3
    assert len(set(texts([0, 1, 2], zone=None).to_pylist())) == 3
    with pytest.raises(RecordError, match=r"row 1, key column 'at': -1 micro.*1970-01-01 00:00:00\.0.*allow to merge"):
        texts([0, -1])
    assert not caplog.records
    assert len(set(texts([0, -1], "allow").to_pylist())) == 1
    assert not caplog.records
    assert texts([0, 1], "warn") == texts([0, 1], "allow")
    assert "1 microseconds" in caplog.text
