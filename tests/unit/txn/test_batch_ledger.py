"""The ledger of last batches: what is remembered, what is forgotten, and what a replay finds."""

from __future__ import annotations

from pathlib import Path

import pytest

from streaming_lsm.errors import ConfigError, CorruptFileError
from streaming_lsm.format.actions.commit import CommitMetadata
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import LEDGER_KEY, BatchIdentity, LastBatch, WriterLedger
from tests.support.writers import make_table

DAY_MS = 86_400_000
NOW_MS = 100 * DAY_MS


def ledger(**ages_in_days: int) -> WriterLedger:
    return WriterLedger({writer: LastBatch(7, NOW_MS - age * DAY_MS) for writer, age in ages_in_days.items()})


def test_a_batch_counts_as_committed_up_to_the_last_one() -> None:
    remembered = ledger(a=0)
    assert [remembered.has(BatchIdentity("a", batch)) for batch in (6, 7, 8)] == [True, True, False]
    assert not remembered.has(BatchIdentity("b", 0))


def test_a_commit_advances_its_writer_and_carries_the_others() -> None:
    advanced, dropped = ledger(a=1, b=2).advanced(BatchIdentity("a", 8), NOW_MS, 30, 1000)
    assert advanced.writers == {"b": LastBatch(7, NOW_MS - 2 * DAY_MS), "a": LastBatch(8, NOW_MS)}
    assert dropped == ()


def test_a_write_without_identity_carries_all() -> None:
    before = ledger(a=1, b=2)
    assert before.advanced(None, NOW_MS, 30, 1000) == (before, ())


def test_idle_writers_are_forgotten_after_the_days_and_not_before() -> None:
    advanced, dropped = ledger(a=30, b=31).advanced(BatchIdentity("c", 0), NOW_MS, 30, 1000)
    assert set(advanced.writers) == {"a", "c"}
    assert dropped == ("b",)


def test_an_idle_writer_that_commits_again_is_not_forgotten() -> None:
    advanced, dropped = ledger(a=99).advanced(BatchIdentity("a", 8), NOW_MS, 30, 1000)
    assert (set(advanced.writers), dropped) == ({"a"}, ())


@pytest.mark.parametrize(
    ("maximum", "kept", "forgotten"), [(3, {"b", "c", "new"}, ("a",)), (1, {"new"}, ("a", "b", "c"))]
)
def test_beyond_the_maximum_the_longest_idle_are_forgotten(
    maximum: int, kept: set[str], forgotten: tuple[str, ...]
) -> None:
    advanced, dropped = ledger(a=3, b=2, c=1).advanced(BatchIdentity("new", 0), NOW_MS, 30, maximum)
    assert set(advanced.writers) == kept
    assert dropped == forgotten


def test_the_first_two_topics_of_a_writer_are_kept_over_its_batches() -> None:
    batches = enumerate([{"b"}, set[str](), {"d", "b", "c"}, {"a"}])
    kept = ledger(other=1)
    for batch, topics in batches:
        kept, _ = kept.advanced(BatchIdentity("a", batch), NOW_MS, 30, 1000, None, topics)
    assert kept.writers["a"].topics == ("b", "c")
    assert kept.topics == ("b", "c")
    assert kept.advanced(None, NOW_MS, 30, 1000, None, {"x"})[0].topics == ("b", "c")


def test_fields_without_a_value_are_left_out_at_the_end() -> None:
    stored = [LastBatch(1, 2), LastBatch(1, 2, {"t/0": "k"}), LastBatch(1, 2, {}, ("t",))]
    assert [one.fields() for one in stored] == [[1, 2], [1, 2, {"t/0": "k"}], [1, 2, {}, ["t"]]]


def test_a_ledger_reads_back_with_any_writer_id() -> None:
    before = WriterLedger({'é\n"x"': LastBatch(1, 2), "": LastBatch(0, 0, {}, ("t", "ü"))})
    assert WriterLedger.decode(before.encode(), "file") == before


@pytest.mark.parametrize("text", ["", "[]", "{", '{"a":1}', '{"a":[1]}', '{"a":["x",1]}', '{"a":[1,1,{},"t"]}', "null"])
def test_a_damaged_ledger_is_named(text: str) -> None:
    with pytest.raises(CorruptFileError, match=rf"the-file.*{LEDGER_KEY}"):
        WriterLedger.decode(text, "the-file")


def test_commits_of_other_programs_do_not_hide_the_ledger(tmp_path: Path) -> None:
    storage = make_table(tmp_path)
    for second, extra in enumerate([{LEDGER_KEY: ledger(a=0).encode()}, {"schema": "{}"}]):
        requested = f"2026112112000{second}000"
        instant = Instant(requested, "deltacommit", State.COMPLETED, requested[:-1] + "5")
        storage.put_if_absent(instant.path, CommitMetadata((), "UPSERT", extra).encode())
    assert WriterLedger.of(Timeline.load(storage)) == ledger(a=0)


def test_a_new_table_remembers_nobody(tmp_path: Path) -> None:
    assert WriterLedger.of(Timeline.load(make_table(tmp_path))) == WriterLedger()


def test_a_ledger_that_readers_would_refuse_is_not_written() -> None:
    writers = {"w" * 5_000 + str(number): LastBatch(1, NOW_MS) for number in range(1_000)}
    with pytest.raises(ConfigError, match=r"ledger of 1000 writers .*lower lsm\.writer\.max\.remembered"):
        WriterLedger(writers).encode()
    with pytest.raises(ConfigError, match=r"ledger of 1 writers .*600\d\d\d parts .*shorten lsm\.writer\.id"):
        WriterLedger({"," * 600_000: LastBatch(1, NOW_MS)}).encode()
