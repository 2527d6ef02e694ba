"""Options that the demo of the Kafka stream refuses, and differences that it finds."""

from __future__ import annotations

import runpy
import tempfile
from dataclasses import asdict, replace
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest

from streaming_lsm.kafka.demo.order import Order

DEMO = Path(__file__).parents[3] / "jobs" / "run_kafka_demo.py"
ROW = Order("o", "c", "DE", "new", 1, Decimal("1.00"), None, datetime(2026, 1, 1, tzinfo=UTC))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"DEMO_KILL": "compaction", "DEMO_EVENTS": "59"},
            "59 events are too few for a compaction to be due: send at least 60",
        ),
        ({"DEMO_KILL": "compacting"}, "argument --kill: 'compacting' is not one of no, compaction"),
        ({"DEMO_EVENTS": "0"}, "argument --events: '0' is not a number of events, such as 20000"),
    ],
)
def test_a_wrong_option_ends_the_demo_with_status_2_before_anything_is_started(
    options: dict[str, str],
    words: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name, value in options.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with pytest.raises(SystemExit) as ended:
        runpy.run_path(str(DEMO))["main"]([])
    out, err = capsys.readouterr()
    assert ended.value.code == 2
    assert out == ""
    assert err.splitlines()[-1].endswith(f"error: {words}")
    assert list(tmp_path.iterdir()) == []


def test_the_comparison_takes_a_late_event_for_a_row_only_where_a_compaction_can_have_dropped_its_delete() -> None:
    compare = runpy.run_path(str(DEMO))["compare_rows"]
    late = replace(ROW, order_id="late")
    rows = pa.Table.from_pylist([asdict(ROW), asdict(late)])
    compare(rows, {"o": ROW}, {"late": late}, 1)
    for most, other in ((0, late), (1, replace(late, qty=2))):
        with pytest.raises(Exception, match="comparison: different\n  late: table has"):
            compare(rows, {"o": ROW}, {"late": other}, most)
    with pytest.raises(Exception, match="comparison: different\n  late: table has"):
        compare(rows, {"o": ROW, "late": replace(late, qty=2)}, {"late": late}, 1)
