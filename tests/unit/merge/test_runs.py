"""`merge_runs` against a record-by-record loser tree and a dict, with batches of a few rows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import streaming_lsm.merge.sorted_runs as merge_module
from streaming_lsm.errors import CorruptFileError
from streaming_lsm.merge.rule import MergeRule
from streaming_lsm.merge.runs import Block, merge_runs
from streaming_lsm.merge.sorted_runs import SortedRun, aligned_blocks, interleave_runs
from tests.support.loser_tree import LoserTree, Record, merge

KEY = "_hoodie_record_key"
DATA = pa.schema([(KEY, pa.string()), ("ts", pa.int64()), ("_hoodie_is_deleted", pa.bool_()), ("value", pa.int64())])
DELETES = pa.schema([(KEY, pa.string()), ("ts", pa.int64())])
KEYS = [
    "a",
    "a\0",
    "a\0b",
    "ab",
    "b",
    "é",
    "\ue000",
    "\U00020000",
    "key-0000000000000000000001",
    "key-00000000000000000",
]

key_places = st.integers(0, len(KEYS) - 1)
rows = st.lists(st.tuples(key_places, st.integers(-2, 2), st.integers(0, 5)), max_size=14)
runs = st.lists(st.tuples(st.booleans(), rows, st.integers(1, 3)), min_size=1, max_size=6)


def records(is_delete_run: bool, drawn: list[tuple[int, int, int]], number: int) -> list[Record]:
    """One run, ascending by key, records of one key as drawn; about one row in six is flagged as a delete."""
    found = []
    for place, (key, ordering, chance) in enumerate(drawn):
        delete = is_delete_run or chance == 0
        unordered_delete = is_delete_run and chance < 2
        found.append(Record(KEYS[key].encode(), ordering, delete, unordered_delete, 1000 * number + place))
    return sorted(found, key=lambda record: record.key)


def batches(run: list[Record], *, deletes: bool, size: int) -> Iterator[pa.RecordBatch]:
    for begin in range(0, len(run), size):
        part = run[begin : begin + size]
        columns: list[list[object]] = [[record.key.decode() for record in part]]
        columns.append([None if record.unordered_delete else record.ordering for record in part])
        if not deletes:
            columns += [[record.delete for record in part], [record.value for record in part]]
        yield pa.record_batch(columns, schema=DELETES if deletes else DATA)


def merged(found: list[SortedRun], rule: MergeRule) -> list[tuple[bytes, int]]:
    return pairs(merge_runs(found, rule))


def pairs(blocks: Iterable[Block]) -> list[tuple[bytes, int]]:
    """Key and value of every row."""
    return [
        (key.encode(), value)
        for table in (block.rows for block in blocks)
        for key, value in zip(table.column(KEY).to_pylist(), table.column("value").to_pylist(), strict=True)
    ]


@pytest.mark.parametrize("event_time", [True, False], ids=["event-time", "commit-time"])
@pytest.mark.parametrize("base", [True, False], ids=["with-base", "logs-only"])
@settings(max_examples=150, deadline=None, derandomize=True)
@given(drawn=runs)
def test_blocks_merge_as_the_loser_tree_does_record_by_record(
    event_time: bool, base: bool, drawn: list[tuple[bool, list[tuple[int, int, int]], int]]
) -> None:
    kinds = [is_delete and not (base and place == 0) for place, (is_delete, _, _) in enumerate(drawn)]
    sources = [records(kinds[place], found, place) for place, (_, found, _) in enumerate(drawn)]
    rule = MergeRule(True, ("ts",)) if event_time else MergeRule(False)
    found = [
        SortedRun(
            f"run {place}",
            batches(source, deletes=kinds[place], size=drawn[place][2]),
            kinds[place],
            base and not place,
        )
        for place, source in enumerate(sources)
    ]
    expected = [(record.key, record.value) for record in merge(sources, event_time=event_time, base=base)]
    blocks = list(merge_runs(found, rule))
    assert pairs(blocks) == expected
    counts = tuple(sum(getattr(block, kind) for block in blocks) for kind in ("inserts", "updates", "deletes"))
    assert counts == counted(expected, {record.key: record.value for record in sources[0]} if base else {}, sources[0])


def counted(live: list[tuple[bytes, int]], in_base: dict[bytes, int], base: list[Record]) -> tuple[int, int, int]:
    """Inserts, updates and deletes that lead from a base file to the live rows."""
    shown, base_values = dict(live), {record.value for record in base}
    inserts = len(shown.keys() - in_base.keys())
    updates = sum(key in in_base and value not in base_values for key, value in shown.items())
    return inserts, updates, len(in_base.keys() - shown.keys())


@pytest.mark.parametrize("event_time", [True, False], ids=["event-time", "commit-time"])
@settings(max_examples=80, deadline=None, derandomize=True)
@given(drawn=runs)
def test_deletes_that_a_mark_tells_are_as_those_of_a_flag(
    event_time: bool, drawn: list[tuple[bool, list[tuple[int, int, int]], int]]
) -> None:
    sources = [records(False, found, place) for place, (_, found, _) in enumerate(drawn)]
    rule = MergeRule(True, ("ts",)) if event_time else MergeRule(False)
    found = [
        SortedRun(f"run {place}", map(marked, batches(source, deletes=False, size=drawn[place][2])), marks="gone")
        for place, source in enumerate(sources)
    ]
    expected = [(record.key, record.value) for record in merge(sources, event_time=event_time, base=False)]
    blocks = list(merge_runs(found, rule))
    assert pairs(blocks) == expected
    assert all("gone" not in block.rows.column_names for block in blocks)


def marked(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The batch with its flags under another name, and nothing but key and ordering in deleted rows."""
    gone = batch.column("_hoodie_is_deleted")
    value = pc.if_else(gone, pa.scalar(None, pa.int64()), batch.column("value"))
    nothing = pa.nulls(len(gone), pa.bool_())
    columns = {KEY: batch.column(KEY), "ts": batch.column("ts"), "gone": gone, "_hoodie_is_deleted": nothing}
    return pa.RecordBatch.from_pydict({**columns, "value": value})


@settings(max_examples=100, deadline=None, derandomize=True)
@given(drawn=runs)
def test_interleaving_keeps_every_row_by_key_and_then_by_run(
    drawn: list[tuple[bool, list[tuple[int, int, int]], int]],
) -> None:
    sources = [records(False, found, place) for place, (_, found, _) in enumerate(drawn)]
    found = [
        SortedRun(f"run {place}", batches(source, deletes=False, size=drawn[place][2]))
        for place, source in enumerate(sources)
    ]
    rows = [record for source in sources for record in source]
    tables = list(interleave_runs(found))
    assert [value for table in tables for value in table.column("value").to_pylist()] == [
        record.value for record in sorted(rows, key=lambda record: record.key)
    ]


@settings(max_examples=100, deadline=None, derandomize=True)
@given(drawn=runs)
def test_no_key_is_in_two_blocks_and_every_row_is_in_one(
    drawn: list[tuple[bool, list[tuple[int, int, int]], int]],
) -> None:
    sources = [records(True, found, place) for place, (_, found, _) in enumerate(drawn)]
    found = [
        SortedRun(str(place), batches(source, deletes=True, size=drawn[place][2]))
        for place, source in enumerate(sources)
    ]
    last = b""
    seen: list[list[bytes]] = [[] for _ in sources]
    for block in aligned_blocks(found):
        keys = [
            (int(run.source), key.encode())
            for run, parts in block
            for batch in parts
            for key in batch.column(KEY).to_pylist()
        ]
        assert [place for place, _ in keys] == sorted(place for place, _ in keys)
        assert not last or min(key for _, key in keys) > last
        last = max(key for _, key in keys)
        for place, key in keys:
            seen[place].append(key)
    assert seen == [[record.key for record in source] for source in sources]


def test_the_loser_tree_pops_by_key_and_then_by_run() -> None:
    sources = [
        [Record(key.encode(), 0, False, False, run) for key in keys] for run, keys in enumerate(["bd", "", "abb"])
    ]
    popped = [record for records in LoserTree(sources).groups() for record in records]
    assert [(record.key, record.value) for record in popped] == [
        (b"a", 2),
        (b"b", 0),
        (b"b", 2),
        (b"b", 2),
        (b"d", 0),
    ]
    assert list(LoserTree([]).groups()) == []


def run(keys: list[str], size: int, *, first_value: int = 0, name: str = "log", base: bool = False) -> SortedRun:
    source = [Record(key.encode(), 1, False, False, first_value + place) for place, key in enumerate(keys)]
    return SortedRun(name, batches(source, deletes=False, size=size), base=base)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_a_key_that_fills_several_batches_gives_its_last_row(size: int) -> None:
    keys = ["a", *["k"] * 10, "z"]
    found = merged([run(keys, size), run(["k"] * 7, size, first_value=100)], MergeRule(True, ("ts",)))
    assert found == [(b"a", 0), (b"k", 106), (b"z", 11)]


def test_the_same_one_key_in_all_runs_ends() -> None:
    found = merged([run(["k"] * 5, 1, first_value=100 * number) for number in range(5)], MergeRule(False))
    assert found == [(b"k", 404)]


def test_many_runs_and_keys_equal_a_dict() -> None:
    model: dict[str, int] = {}
    sources = []
    for number in range(9):
        keys = sorted(f"{(place * 7 + number) % 50:03d}" for place in range(0, 40, number % 3 + 1))
        sources.append(run(keys, number % 3 + 1, first_value=1000 * number))
        model.update({key: 1000 * number + place for place, key in enumerate(keys)})
    assert merged(sources, MergeRule(False)) == [(key.encode(), model[key]) for key in sorted(model)]


def test_repeated_keys_of_a_lone_base_file_are_folded() -> None:
    assert merged([run(["a", "b", "b", "c"], 2, base=True)], MergeRule(True, ("ts",))) == [
        (b"a", 0),
        (b"b", 2),
        (b"c", 3),
    ]


@pytest.mark.parametrize("base", [True, False], ids=["base", "log"])
def test_a_flagged_row_is_shown_only_when_it_is_the_base_files_alone(base: bool) -> None:
    source = [Record(b"a", 1, True, False, 0), Record(b"b", 1, False, False, 1)]
    found = merged([SortedRun("file", batches(source, deletes=False, size=1), base=base)], MergeRule(True, ("ts",)))
    assert found == ([(b"a", 0)] if base else []) + [(b"b", 1)]


def test_nothing_comes_of_no_runs_and_of_empty_ones() -> None:
    empty = SortedRun("empty", iter([]))
    assert list(merge_runs([], MergeRule(False))) == []
    assert (
        list(merge_runs([empty, SortedRun("deletes", batches([], deletes=True, size=1), True)], MergeRule(False))) == []
    )
    only_deletes = [Record(b"a", 0, True, True, 0)]
    assert list(merge_runs([SortedRun("d", batches(only_deletes, deletes=True, size=1), True)], MergeRule(False))) == []


def test_empty_batches_between_full_ones_are_passed_over() -> None:
    full = list(batches([Record(b"a", 0, False, False, 1), Record(b"b", 0, False, False, 2)], deletes=False, size=1))
    empty = pa.record_batch([[]] * 4, schema=DATA)
    assert merged([SortedRun("log", iter([empty, full[0], empty, empty, full[1], empty]))], MergeRule(False)) == [
        (b"a", 1),
        (b"b", 2),
    ]


@pytest.mark.parametrize("size", [1, 2, 3, 10])
@pytest.mark.parametrize("keys", [["b", "a"], ["a", "c", "b", "d"], ["\U00020000", "\ue000"]], ids=str)
def test_a_run_that_descends_names_the_file(size: int, keys: list[str]) -> None:
    with pytest.raises(CorruptFileError, match=r"part/file\.parquet.*ascend"):
        merged([run(["a", "z"], 1), run(keys, size, name="part/file.parquet")], MergeRule(False))


def test_a_record_without_key_names_the_file() -> None:
    broken = pa.record_batch([[None], [1], [False], [1]], schema=DATA)
    with pytest.raises(CorruptFileError, match=r"part/file\.parquet.*_hoodie_record_key"):
        list(merge_runs([SortedRun("part/file.parquet", iter([broken]))], MergeRule(False)))


def test_a_block_whose_keys_are_all_gone_tells_so() -> None:
    deletes = SortedRun("deletes", batches([Record(b"a", 0, True, True, 0)], deletes=True, size=1), deletes=True)
    blocks = list(merge_runs([run(["a"], 1, base=True), deletes], MergeRule(False)))
    assert [(block.rows.num_rows, block.inserts, block.updates, block.deletes) for block in blocks] == [(0, 0, 0, 1)]


def test_a_run_of_this_process_is_not_checked_again() -> None:
    keys = batches([Record(b"b", 0, True, True, 0), Record(b"a", 0, True, True, 0)], deletes=True, size=2)
    assert len(list(aligned_blocks([SortedRun("own", keys, deletes=True, trusted=True)]))) == 1


def test_only_what_is_needed_of_a_run_is_loaded() -> None:
    taken: list[int] = []

    def counted() -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(
            batches([Record(b"%03d" % n, 0, False, False, n) for n in range(100)], deletes=False, size=1)
        ):
            taken.append(number)
            yield batch

    blocks = merge_runs([SortedRun("long", counted()), run(["000", "001"], 1)], MergeRule(False))
    next(blocks)
    assert len(taken) < 5


def test_two_hundred_runs_hold_a_batch_or_two_each() -> None:
    runs, rows, size = 200, 60, 4
    made = handed_over = most = 0

    def counted(number: int) -> Iterator[pa.RecordBatch]:
        nonlocal made
        source = [Record(b"%06d" % (place * runs + number), 0, False, False, number) for place in range(rows)]
        for batch in batches(source, deletes=False, size=size):
            made += batch.num_rows
            yield batch

    for block in aligned_blocks([SortedRun(str(number), counted(number)) for number in range(runs)]):
        most = max(most, made - handed_over)
        handed_over += sum(batch.num_rows for _, parts in block for batch in parts)
    assert made == handed_over == runs * rows
    assert most <= 2 * runs * size


def test_what_neither_deletes_nor_updates_is_handed_on_without_a_copy() -> None:
    keys = pa.array(["a", "b"])
    batch = pa.record_batch([keys, pa.array([1, 1]), pa.array([False, False]), pa.array([7, 8])], schema=DATA)
    for base in (True, False):
        blocks = list(merge_runs([SortedRun("file", iter([batch]), base=base)], MergeRule(True, ("ts",))))
        chunks = [chunk for block in blocks for chunk in block.rows.column("value").chunks]
        assert [value for chunk in chunks for value in chunk.to_pylist()] == [7, 8]
        assert {chunk.buffers()[1].address for chunk in chunks} == {batch.column("value").buffers()[1].address}
        assert sum(block.inserts for block in blocks) == (0 if base else 2)


def test_the_few_rows_that_mass_deletes_leave_do_not_keep_their_blocks_in_memory() -> None:
    size, count, text = 2000, 30, "x" * 100
    schema = pa.schema([(KEY, pa.string()), ("ts", pa.int64()), ("value", pa.string())])

    def base(number: int) -> pa.RecordBatch:
        keys = [f"{size * number + row:06d}" for row in range(size)]
        return pa.record_batch([keys, [1] * size, [text] * size], schema=schema)

    def gone(number: int) -> pa.RecordBatch:
        return pa.record_batch([base(number).column(KEY)[1:], [2] * (size - 1)], schema=DELETES)

    before = pa.total_allocated_bytes()
    runs = [
        SortedRun("base", map(base, range(count)), base=True),
        SortedRun("deletes", map(gone, range(count)), deletes=True),
    ]
    blocks = list(merge_runs(runs, MergeRule(True, ("ts",))))
    runs.clear()
    assert sum(block.rows.num_rows for block in blocks) == count
    assert pa.total_allocated_bytes() - before < size * len(text)


def test_a_smaller_ordering_value_after_a_larger_one_among_many_keys() -> None:
    older = [Record(b"%03d" % n, 5, False, False, n) for n in range(100)]
    newer = [Record(b"%03d" % n, 4 if n % 10 == 3 else 5, False, False, 1000 + n) for n in range(100)]
    found = [
        SortedRun(str(n), batches(rows, deletes=False, size=30), base=n == 0) for n, rows in enumerate([older, newer])
    ]
    blocks = list(merge_runs(found, MergeRule(True, ("ts",))))
    assert pairs(blocks) == [(b"%03d" % n, n if n % 10 == 3 else 1000 + n) for n in range(100)]
    assert sum(block.updates for block in blocks) == 90


def hot_runs(count: int, size: int = 3) -> list[SortedRun]:
    """Two runs of `count` batches that all hold one key, between smaller and larger keys."""

    def batches_of(run: int) -> Iterator[pa.RecordBatch]:
        for number in range(count):
            keys = ["a"] * (number == 0) + ["hot"] * size + ["z"] * (number == count - 1)
            places = [1_000_000 * run + 1000 * number + place for place in range(len(keys))]
            yield pa.record_batch([keys, places, [False] * len(keys), places], schema=DATA)

    return [SortedRun(f"run {run}", batches_of(run)) for run in (0, 1)]


def looks(count: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """How many keys are read to align the two runs of `hot_runs`."""
    read: list[int] = []
    key_at = merge_module._key_at

    def noting(keys: pa.Array, row: int) -> bytes:  # type: ignore[type-arg]
        read.append(row)
        return key_at(keys, row)

    with monkeypatch.context() as patched:
        patched.setattr(merge_module, "_key_at", noting)
        found = list(aligned_blocks(hot_runs(count)))
    assert sum(batch.num_rows for parts in found for _, batches in parts for batch in batches) == 2 * (3 * count + 2)
    return len(read)


def test_one_key_in_twice_as_many_batches_takes_twice_as_many_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    counts = [looks(count, monkeypatch) for count in (50, 100, 200)]
    assert counts[1] <= 2.2 * counts[0]
    assert counts[2] <= 2.2 * counts[1]


def test_one_key_that_fills_many_batches_of_both_runs_is_folded_once() -> None:
    blocks = list(merge_runs(hot_runs(40), MergeRule(True, ("ts",))))
    assert pairs(blocks) == [(b"a", 1_000_000), (b"hot", 1_039_002), (b"z", 1_039_003)]
