"""Record mergers of other packages: found by strategy id, folded pair by pair."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import ClassVar

import numpy as np
import pyarrow as pa
import pytest

from streaming_lsm import LsmTable
from streaming_lsm.errors import ConfigError, MergerError, UnsupportedTable
from streaming_lsm.merge import record_merger
from streaming_lsm.merge.pair_fold import fold_pairs
from streaming_lsm.merge.record_merger import GROUP, find_merger, merged_rows
from streaming_lsm.merge.rule import MergeRule
from tests.support.mixing_merger import STRATEGY, mixed

SCHEMA = pa.schema([("id", pa.string()), ("count", pa.int64()), ("text", pa.string())])
RULE = MergeRule(event_time=False, strategy=STRATEGY)
OPTIONS = {
    "hoodie.table.name": "t",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.record.merge.mode": "CUSTOM",
    "hoodie.record.merge.strategy.id": STRATEGY,
}


def test_pairs_are_merged_from_the_oldest_to_the_newest() -> None:
    chance = np.random.default_rng(3)
    lengths = np.array([1, 7, 2, 1, 300, 3])
    numbers = chance.integers(0, 1000, lengths.sum())
    rows = pa.table({"_hoodie_commit_time": [f"{n:03}" for n in range(len(numbers))], "count": numbers})
    places = chance.permutation(len(numbers))
    starts = np.cumsum(lengths) - lengths
    wanted = []
    for begin, length in zip(starts, lengths, strict=True):
        outcome: object = int(numbers[places[begin]])
        for place in places[begin + 1 : begin + length]:
            outcome = mixed("count", outcome, int(numbers[place]))
        wanted.append({"_hoodie_commit_time": f"{places[begin + length - 1]:03}", "count": outcome})
    assert fold_pairs(rows, starts, places, RULE).to_pylist() == wanted


def test_no_rows_are_folded_to_none() -> None:
    rows, none = pa.table({"count": pa.array([], pa.int64())}), np.empty(0, np.int64)
    assert len(fold_pairs(rows, none, none, RULE)) == 0


class Short:
    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        return newer.slice(1)


class Renaming:
    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        return newer.rename_columns(["other"])


class Retyping:
    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        return pa.table({"count": ["x"] * len(newer)})


class Failing:
    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        raise KeyError("boom")


class Silent:
    def merge(self, older: pa.Table, newer: pa.Table) -> None:
        return None


@pytest.mark.parametrize(
    ("merger", "said"),
    [
        (Short(), "Short returned 0 rows for 1 pairs"),
        (Renaming(), "Renaming returned the columns other"),
        (Retyping(), "Retyping returned other types"),
        (Silent(), "Silent returned NoneType for 1 pairs"),
        (Failing(), r"Failing failed \(KeyError: 'boom'\)"),
    ],
)
def test_what_a_merger_returns_is_checked(merger: Short, said: str) -> None:
    rows = pa.table({"count": [1, 2]})
    with pytest.raises(MergerError, match=said):
        merged_rows(merger, rows.slice(0, 1), rows.slice(1))


def _installed(folder: Path, entries: str, monkeypatch: pytest.MonkeyPatch) -> None:
    info = folder / "one_merger-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: one-merger\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[{GROUP}]\n{entries}\n")
    monkeypatch.syspath_prepend(folder)


@pytest.mark.parametrize(
    ("object_", "said"),
    [
        ("no_such_module:Merger", r"no_such_module:Merger cannot be loaded \(ModuleNotFoundError"),
        ("tests.support.mixing_merger:mixed", "mixing_merger:mixed has no method merge"),
    ],
)
def test_a_merger_that_cannot_be_used_is_named(
    object_: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _installed(tmp_path, f"aaaaaaaa-0000-4000-8000-000000000001 = {object_}", monkeypatch)
    with pytest.raises(UnsupportedTable, match=said):
        find_merger("aaaaaaaa-0000-4000-8000-000000000001", "t")


def test_a_merger_of_two_packages_is_not_chosen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    strategy = "aaaaaaaa-0000-4000-8000-000000000002"
    for number in range(2):
        info = tmp_path / f"m{number}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: m{number}\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(f"[{GROUP}]\n{strategy} = m{number}:Merger\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(UnsupportedTable, match="several packages offer it"):
        find_merger(strategy, "t")


def test_a_table_whose_merger_is_gone_is_not_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gone = "aaaaaaaa-0000-4000-8000-000000000003"
    with monkeypatch.context() as patched:
        _installed(tmp_path / "packages", f"{gone} = tests.support.mixing_merger:MixingMerger", patched)
        table = LsmTable.create(tmp_path / "t", SCHEMA, {**OPTIONS, "hoodie.record.merge.strategy.id": gone.upper()})
        assert table.config.merge_strategy == gone
    record_merger._load.cache_clear()
    with pytest.raises(UnsupportedTable, match=rf"{gone}.*no installed package"):
        LsmTable(table.path)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"hoodie.record.merge.strategy.id": "aaaaaaaa-0000-4000-8000-000000000004"}, "no installed package"),
        ({"hoodie.record.merge.strategy.id": "00000000-0000-0000-0000-000000000000"}, "an id of Hudi's"),
        ({"hoodie.record.merge.strategy.id": "mine"}, "'mine': expected a UUID"),
        ({"hoodie.record.merge.mode": "COMMIT_TIME_ORDERING"}, "go together"),
        ({"hoodie.write.table.version": 8}, "needs hoodie.write.table.version=9"),
        ({"hoodie.table.partial.update.mode": "IGNORE_DEFAULTS"}, "no hoodie.table.partial.update.mode"),
    ],
)
def test_options_of_a_new_table_are_checked(changed: dict[str, object], said: str, tmp_path: Path) -> None:
    with pytest.raises((ConfigError, UnsupportedTable), match=said):
        LsmTable.create(tmp_path / "t", SCHEMA, {**OPTIONS, **changed})
    assert not (tmp_path / "t").exists()


@pytest.mark.parametrize("version", [9, 10])
@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_rows_are_merged_whatever_columns_are_read(version: int, kind: str, tmp_path: Path) -> None:
    options = {**OPTIONS, "hoodie.write.table.version": version, "hoodie.table.type": kind}
    table = LsmTable.create(tmp_path / "t", SCHEMA, options)
    for count, text in ((1, "a"), (2, None), (3, None)):
        table.upsert(pa.table([["x"], [count], [text]], schema=SCHEMA))
    wanted = (1 * 2 + 2) * 2 + 3
    assert table.scan().to_arrow().to_pylist() == [{"id": "x", "count": wanted, "text": "a"}]
    assert table.scan(["text"]).to_arrow().to_pylist() == [{"text": "a"}]
    assert table.lookup(["x"]).to_pylist() == [{"id": "x", "count": wanted, "text": "a"}]
    assert LsmTable(table.path).scan(["count"]).count() == 1


class Meddling:
    """Changes what a merger may not change, and notes the columns that it is given."""

    given: ClassVar[set[tuple[str, ...]]] = set()

    def merge(self, older: pa.Table, newer: pa.Table) -> pa.Table:
        self.given.add(tuple(newer.schema.names))
        changed = {"id": pa.repeat("other", len(newer)), "_hoodie_is_deleted": pa.repeat(True, len(newer))}
        return pa.table([changed.get(name, newer[name]) for name in newer.schema.names], newer.schema.names)


@pytest.mark.parametrize("kind", ["MERGE_ON_READ", "COPY_ON_WRITE"])
def test_a_merger_sees_whole_rows_and_cannot_change_keys_or_deletes(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schema = pa.schema([*SCHEMA, ("_hoodie_is_deleted", pa.bool_())])
    strategy = "aaaaaaaa-0000-4000-8000-000000000005"
    _installed(tmp_path / "packages", f"{strategy} = {__name__}:Meddling", monkeypatch)
    monkeypatch.setitem(sys.modules, __name__, sys.modules.get(__name__, ModuleType(__name__)))
    monkeypatch.setattr(sys.modules[__name__], "Meddling", Meddling, raising=False)
    options = {**OPTIONS, "hoodie.record.merge.strategy.id": strategy, "hoodie.table.type": kind}
    table = LsmTable.create(tmp_path / "t", schema, options)
    one, two, three = ({"id": "k", "count": count, "_hoodie_is_deleted": False} for count in (1, 2, 3))
    table.upsert(pa.Table.from_pylist([one, two], schema))
    table.upsert(pa.Table.from_pylist([three], schema))
    assert table.get("k") == {**three, "text": None}
    assert table.scan().count() == 1
    assert Meddling.given == {tuple(schema.names)}
