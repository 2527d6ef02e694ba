"""Build the key generator that a table's properties ask for."""

from __future__ import annotations

from streaming_lsm.format.table.config import TableConfig
from streaming_lsm.keys.generator import ALLOW, KeyGenerator


def key_generator(table: TableConfig, ambiguous: str = ALLOW) -> KeyGenerator:
    """Build the table's key generator.

    Args:
        table: the table's config.
        ambiguous: the handling of ambiguous record keys, see `KeyGenerator.ambiguous`.

    Raises:
        ConfigError: the key generator does not support the table's settings.
    """
    return KeyGenerator.from_config(
        table.key_generator,
        table.record_key_fields,
        [(part.name, part.kind) for part in table.partition_fields],
        hive_style=table.hive_style,
        url_encode=table.url_encode,
        timestamp_options=table.timestamp_options,
        logical_timestamp=table.logical_timestamp,
        ambiguous=ambiguous,
    )
