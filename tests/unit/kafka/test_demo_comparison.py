"""Differences between table and events that the demo of the Kafka stream finds."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from streaming_lsm.kafka.demo.comparison import DemoFailed, compare_rows
from streaming_lsm.kafka.demo.order import Order

ROW = Order("o", "c", "DE", "new", 1, Decimal("1.00"), None, datetime(2026, 1, 1, tzinfo=UTC))


def test_the_comparison_takes_a_late_event_for_a_row_only_where_a_compaction_can_have_dropped_its_delete() -> None:
    late = replace(ROW, order_id="late")
    rows = pa.Table.from_pylist([asdict(ROW), asdict(late)])
    compare_rows(rows, {"o": ROW}, {"late": late}, 1)
    for most, other in ((0, late), (1, replace(late, qty=2))):
        with pytest.raises(DemoFailed, match="comparison: different\n  late: table has"):
            compare_rows(rows, {"o": ROW}, {"late": other}, most)
    with pytest.raises(DemoFailed, match="comparison: different\n  late: table has"):
        compare_rows(rows, {"o": ROW, "late": replace(late, qty=2)}, {"late": late}, 1)
