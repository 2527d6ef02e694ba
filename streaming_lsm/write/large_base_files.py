"""Warn on the driver of base files that are too large, as their table has too few buckets."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Iterable

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.format.table.config import TableConfig

_LOG = logging.getLogger(__name__)


def warn_of_large_base_files(stats: Iterable[WriteStat], table: TableConfig, options: Options, path: str) -> None:
    """Log one warning if an action wrote base files of more than `hoodie.parquet.max.file.size` bytes.

    A bucket has one base file of any size, and the number of buckets is fixed, so the warning names the command that
    copies the rows to a table with more of them. Without buckets files end by themselves.

    Args:
        stats: the write stats of the action.
        table: the table's config.
        options: the options that the table was opened with.
        path: the table's path.
    """
    limit = options[config.BASE_MAX_BYTES]
    large = [stat for stat in stats if stat.log_version is None and stat.total_bytes > limit]
    if not large or not table.has_buckets:
        return
    largest = max(large, key=lambda stat: stat.total_bytes)
    _LOG.warning(
        "%d base files of %s have more than %s=%d bytes, the largest, %s, has %d: more buckets have smaller files. "
        "Stop the writers and copy the table: lsm copy %s NEW -o %s=%d",
        *(len(large), path, config.BASE_MAX_BYTES.key, limit, largest.path, largest.total_bytes),
        *(shlex.quote(path), config.NUM_BUCKETS.key, enough_buckets(table.num_buckets, largest.total_bytes, limit)),
    )


def enough_buckets(num_buckets: int, largest: int, limit: int) -> int:
    """Return the power of two of buckets that divides a file of `largest` bytes into files of half of `limit`, or less.

    Args:
        num_buckets: the table's number; 0 if it is unknown.
        largest: bytes of its largest base file.
        limit: bytes that a base file should have at most.
    """
    needed = -(-max(1, num_buckets) * 2 * largest // limit)
    return 1 << (needed - 1).bit_length()
