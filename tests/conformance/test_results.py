"""The table of a run says what passed, failed, was refused and was not run."""

from __future__ import annotations

from tests.conformance.results import Results, as_text


def test_a_line_lasts_until_the_next_one_or_the_end_of_its_test() -> None:
    moments = iter([0.0, 1.5, 1.5, 4.0, 4.0, 5.0])
    results = Results(lambda: next(moments))
    results.record("orders", "hudi reads ours", "snapshot")
    results.record("orders", "hudi reads ours", "cdc", note="after compaction")
    results.close("failed")
    results.record("types", "hudi-rs reads ours", "snapshot").refuse("no timestamp_ntz")
    results.close("passed")
    assert list(as_text(results.lines)) == [
        "case    direction           query     outcome  seconds  note",
        "orders  hudi reads ours     snapshot  passed       1.5",
        "orders  hudi reads ours     cdc       failed       2.5  after compaction",
        "types   hudi-rs reads ours  snapshot  refused      1.0  no timestamp_ntz",
        "1 passed; 1 failed; 1 refused",
    ]


def test_a_line_that_fails_after_it_was_refused_is_failed() -> None:
    results = Results()
    results.record("types", "hudi-rs reads ours", "snapshot").refuse("no timestamp_ntz")
    results.close("failed")
    assert [line.outcome for line in results.lines] == ["failed"]
