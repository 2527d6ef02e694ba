"""Find the commits that a query's batches made in a table."""

from __future__ import annotations

import json
from dataclasses import dataclass

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import LsmError
from streaming_lsm.format.actions.commit import WriteStat
from streaming_lsm.storage.uris import open_storage
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.batch_ledger import LEDGER_KEY, LastBatch, WriterLedger
from streaming_lsm.write.intake.dead_letters import batch_folder, count_letters
from streaming_lsm.write.numbers import NUMBERS_KEY, Counts
from streaming_lsm.write.plan import DeadLetters


@dataclass(frozen=True, slots=True)
class BatchCommit:
    """Holds the commit of a batch.

    Attributes:
        instant: requested time of the commit.
        committed_ms: time of the commit, milliseconds since the epoch.
        stats: files of the commit.
        unknown_fields: upserts by field of theirs that the table does not have.
    """

    instant: str
    committed_ms: int
    stats: tuple[WriteStat, ...]
    unknown_fields: Counts


class TableCommits:
    """Reads the commits of a query in a table."""

    def __init__(self, options: Options, query_id: str) -> None:
        """Open the table's storage, and that of its dead letters.

        Args:
            options: those of the table, its path included.
            query_id: id of the query, which names the writer unless an option does.
        """
        self._storage = open_storage(str(options[config.TABLE_PATH]))
        self._writer = options[config.WRITER_ID] or query_id
        letters = options[config.DEAD_LETTER_PATH] if options[config.ON_BAD_EVENT] == "dead_letter" else None
        self._letters = None if letters is None else open_storage(letters)
        self._ledgers: dict[Instant, LastBatch | None] = {}

    def commit_of(self, batch_id: int) -> BatchCommit | None:
        """Find the commit of a batch: the first completed one whose ledger has it. Later commits carry the ledger on.

        Commits are ordered by completion time, as a long compaction has a later ledger than its requested time shows.
        """
        try:
            timeline = Timeline.load(self._storage)
        except LsmError:
            return None
        found: tuple[Instant, LastBatch] | None = None
        seen: dict[Instant, LastBatch | None] = {}
        for instant in sorted(timeline.completed_writes, key=lambda write: write.completed or "", reverse=True):
            batch = seen[instant] = self._ledger_of(instant, timeline)
            if batch is None:
                continue
            if batch.batch_id < batch_id:
                break
            if batch.batch_id == batch_id:
                found = instant, batch
        # The next batch is looked for among these and later ones.
        self._ledgers = seen
        if found is None:
            return None
        instant, batch = found
        commit = timeline.read_commit(instant)
        numbers = json.loads(commit.extra.get(NUMBERS_KEY, "{}"))
        return BatchCommit(
            instant.requested, batch.committed_ms, tuple(commit.stats), numbers.get("unknown_fields", {})
        )

    def dead_letters(self, batch_id: int) -> int:
        """Count the dead letters of a batch."""
        if self._letters is None:
            return 0
        return count_letters(DeadLetters(self._letters, batch_folder(self._writer, batch_id)))

    def _ledger_of(self, instant: Instant, timeline: Timeline) -> LastBatch | None:
        """Read the query's last batch from the ledger of a commit; None when the ledger does not have the query."""
        if instant in self._ledgers:
            return self._ledgers[instant]
        text = timeline.read_commit(instant).extra.get(LEDGER_KEY)
        ledger = WriterLedger() if text is None else WriterLedger.decode(text, instant.path)
        return ledger.writers.get(self._writer)
