"""`Outcome`: the result of an action, as `Transaction` reconciles and publishes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from streaming_lsm.format.actions.commit import CommitMetadata, WriteStat, paths_of


@dataclass(frozen=True)
class Outcome:
    """Describe what an action did to the files of the table.

    Attributes:
        stats: one per file; a stat names the change files written with its file, too.
        operation: Hudi's name of the write operation, such as ``UPSERT``.
        schema_json: Avro JSON of the table's schema without meta columns.
        replaced: partition path -> ids of file groups that are no longer visible; None unless the action is a
            replacecommit.
        replaces_all: whether the action replaces all file groups of the table.
        extra: further keys for the extra metadata of the commit.
        open_deletes: deletes whose tombstone may come with the writer's next batch, see `LastBatch`.
        topics: topics of the events that were written.
        sole: whether each task ran once, in this process: there are no files but those of `stats`.
        renamed: the columns that the action renames, see `ColumnChange`.
    """

    stats: tuple[WriteStat, ...]
    operation: str
    schema_json: str
    replaced: Mapping[str, tuple[str, ...]] | None = None
    replaces_all: bool = False
    extra: Mapping[str, str] = field(default_factory=dict)
    open_deletes: Mapping[str, str] | None = None
    topics: frozenset[str] = frozenset()
    sole: bool = False
    renamed: Mapping[str, str] = field(default_factory=dict)

    @property
    def paths(self) -> frozenset[str]:
        """Paths of all files that were written, change files included."""
        return paths_of(self.stats)

    def metadata(self, entries: Mapping[str, str], *, compacted: bool) -> CommitMetadata:
        """Build the metadata of the commit.

        Args:
            entries: added to `extra`, such as the writer ledger.
            compacted: whether the action is a compaction.
        """
        extra = {**self.extra, "schema": self.schema_json, **entries}
        return CommitMetadata(self.stats, self.operation, extra, compacted=compacted, replaced=self.replaced)
