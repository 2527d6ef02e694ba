"""Keys of hoodie.properties that differ from Hudi's by one edit."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time

import pytest

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.format.table.properties import PropertiesReader

SOURCE = "t/.hoodie/hoodie.properties"
ORDERING = "hoodie.table.ordering.fields"
CONFIG = TableConfig(name="orders", record_key_fields=("id",), ordering_fields=("ts",), num_buckets=8)


def without_ordering(key: str, value: str = "ts") -> dict[str, str]:
    """Properties of a good table that has `key` in place of the key of the ordering fields."""
    properties = CONFIG.to_properties()
    del properties[ORDERING]
    return {**properties, key: value}


@pytest.mark.parametrize(
    "key",
    [
        "hoodie.table.orderng.fields",
        "hoodie.table.orderingg.fields",
        "hoodie.table.odrering.fields",
        "hoodie.table.ordering.fileds",
        "hoodie.tabel.ordering.fields",
        "hoodie.table.ordering.field",
        "hoodie.table.orderinG.fields",
        "oodie.table.ordering.fields",
    ],
)
def test_ordering_fields_under_a_misspelt_key_are_refused_by_file_and_key(key: str) -> None:
    with pytest.raises(CorruptFileError) as raised:
        TableConfig.from_properties(without_ordering(key), SOURCE)
    assert str(raised.value).startswith(f"{SOURCE}: {key}=ts: the key is damaged, {ORDERING} is missing")


def edits(text: str, letters: str) -> Iterator[str]:
    """Every text that one insertion, deletion, replacement or swap of neighbours makes of `text`."""
    yield from (text + letter for letter in letters)
    for at in range(len(text)):
        yield text[:at] + text[at + 1 :]
        yield text[:at] + text[at + 1 : at + 2] + text[at] + text[at + 2 :]
        for letter in letters:
            yield text[:at] + letter + text[at:]
            yield text[:at] + letter + text[at + 1 :]


@pytest.mark.parametrize("known", [ORDERING, "hoodie.table.precombine.field", "lsm.bucket.index.hash.field"])
def test_each_edit_of_a_key_that_changes_it_is_reported(known: str) -> None:
    for key in set(edits(known, "x.e")) - {known}:
        with pytest.raises(CorruptFileError, match=f"{known} is missing"):
            PropertiesReader({key: "ts"}, SOURCE).check_keys()


@pytest.mark.parametrize("separator", ["=", ":", " "])
def test_a_separator_inserted_into_a_key_is_reported(separator: str) -> None:
    for at in range(1, len(ORDERING)):
        value = f"{ORDERING[at:]}{separator}ts".lstrip()
        with pytest.raises(CorruptFileError, match=f"{ORDERING} is missing"):
            PropertiesReader({ORDERING[:at]: value}, SOURCE).check_keys()


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.table.orderng.field", "ts"),  # two edits
        ("hoodie.table.ordering.by", "ts"),
        ("hoodie.table.ordering.fields.order", "ts"),
        ("hoodie.table.metadata.partitions.inflight", "files"),
        ("hoodie.table.metadata.partitions.inflight", ""),
        ("hoodie.new.in.2027", ""),
        ("ts", "ts"),
    ],
)
def test_other_keys_are_accepted(key: str, value: str) -> None:
    assert TableConfig.from_properties(without_ordering(key, value), SOURCE).properties[key] == value


def test_a_near_key_is_accepted_beside_the_key_itself() -> None:
    properties = {**CONFIG.to_properties(), "hoodie.table.orderng.fields": "n"}
    assert TableConfig.from_properties(properties, SOURCE).ordering_fields == ("ts",)


@pytest.mark.parametrize("begin", [ORDERING[:-3], "hoodie.table.x", "x" * 1000], ids=["near", "unlike", "long"])
def test_ten_thousand_unknown_keys_are_checked_in_bounded_time(begin: str) -> None:
    properties = {f"{begin}{number}.s": "v" * 1000 for number in range(10_000)}
    reader = PropertiesReader(properties, SOURCE)
    begun = process_time()
    reader.check_keys()
    assert process_time() - begun <= 2
