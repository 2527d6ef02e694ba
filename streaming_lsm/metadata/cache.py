"""Keep what an open table knows of its metadata table from one transaction to the next."""

from __future__ import annotations

from dataclasses import dataclass, field

from streaming_lsm.metadata.logged_records import LoggedRecords
from streaming_lsm.metadata.shard_files import ShardFiles


@dataclass(frozen=True)
class MetadataCache:
    """Knowledge of one open table.

    Attributes:
        shard_files: reads the files of the record index.
        logged: records that its transactions have logged since the last compactions.
        refused: partitions that the options ask for, and that could not be built: each attempt reads the whole table
            under its lock.
        put_off: partitions that are made when a clean is completed, as the log tells once.
    """

    shard_files: ShardFiles = field(default_factory=ShardFiles)
    logged: LoggedRecords = field(default_factory=LoggedRecords)
    refused: set[str] = field(default_factory=set)
    put_off: set[str] = field(default_factory=set)
