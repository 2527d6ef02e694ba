"""Build the merge rule of a table from its config."""

from __future__ import annotations

from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.merge.rule import MergeRule


def table_rule(table: TableConfig) -> MergeRule:
    """Return how records of one key merge in a table."""
    names = (*table.record_key_fields, *(part.name for part in table.partition_fields))
    return MergeRule.of(
        mode=table.merge_mode,
        ordering_fields=table.ordering_fields,
        field=table.delete_field,
        marker=table.delete_marker,
        partial=table.partial_mode,
        unavailable=table.unavailable,
        logs_first=table.folds_logs_first,
        strategy=table.merge_strategy,
        identity=(name.partition(".")[0] for name in names),
    )
