"""Compare the demo's table and dead letters with the events that were sent, and print the outcome."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from streaming_lsm.kafka.demo.order import Order


class DemoFailed(Exception):
    """Reports a difference between the table and the events, or a job that ended with an error."""


def compare_dead_letters(folder: Path, expected: list[tuple[int, int, str]]) -> None:
    """Check that the dead letters are exactly the poison events, and print their reasons.

    Raises:
        DemoFailed: a poison event is missing, or a good event is among the dead letters.
    """
    letters = ds.dataset(folder, format="parquet").to_table().to_pylist() if folder.exists() else []
    found = Counter((int(letter["partition"] or 0), int(letter["offset"] or 0)) for letter in letters)
    wanted = Counter((partition, offset) for partition, offset, _ in expected)
    if found != wanted:
        missing, extra = sorted(wanted - found), sorted(found - wanted)
        raise DemoFailed(f"dead letters (partition, offset): missing {missing[:5]}, not expected {extra[:5]}")
    print(f"\ndead letters: equal ({len(expected)} poison events, each with topic, partition, offset and reason)")
    for reason, count in Counter(str(letter["reason"]) for letter in letters).most_common():
        print(f"  {count:4}  {reason[:110]}")


def compare_rows(
    rows: pa.Table, expected: dict[str, Order], late: dict[str, Order] | None = None, most_forgotten: int = 0
) -> None:
    """Compare the snapshot with the model, row by row.

    Args:
        rows: the snapshot.
        expected: the model.
        late: by key, an update that is older than the delete before it, see `OrderEvents`.
        most_forgotten: number of these updates that may be rows, as a compaction dropped the delete before them.

    Raises:
        DemoFailed: rows differ; the message has the first ten differences.
    """
    columns = list(Order.__dataclass_fields__)
    utc = rows.set_column(
        rows.schema.get_field_index("updated_at"), "updated_at", pc.cast(rows["updated_at"], pa.timestamp("us", "UTC"))
    )
    found = {row["order_id"]: tuple(row[name] for name in columns) for row in utc.select(columns).to_pylist()}
    wanted = {key: tuple(getattr(order, name) for name in columns) for key, order in expected.items()}
    forgotten = [
        key
        for key, order in (late or {}).items()
        if key not in wanted and found.get(key) == tuple(getattr(order, name) for name in columns)
    ][:most_forgotten]
    for key in forgotten:
        wanted[key] = found[key]
    differences = [
        f"{key}: table has {found.get(key)}, events say {wanted.get(key)}"
        for key in sorted(found.keys() | wanted.keys())
        if found.get(key) != wanted.get(key)
    ]
    if len(found) != rows.num_rows:
        differences.append(f"{rows.num_rows - len(found)} keys are in the snapshot twice")
    if differences:
        raise DemoFailed("comparison: different\n  " + "\n  ".join(differences[:10]))
    print(f"\ncomparison: equal ({len(found):,} rows)")
    if forgotten:
        print(
            f"  {len(forgotten)} of them by a late event after a compaction had dropped its delete (docs/services.md)"
        )
