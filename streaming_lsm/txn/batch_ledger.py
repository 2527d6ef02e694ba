"""The memory that makes a replayed batch harmless: the last batch of each writer, carried from commit to commit."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from streaming_lsm.config import WRITER_ID, Options
from streaming_lsm.errors import ConfigError, CorruptFileError
from streaming_lsm.timeline.timeline import Timeline

LEDGER_KEY = "lsm.writers"
"""Key of the ledger in a commit's extra metadata."""

_DAY_MS = 86_400_000


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """One batch of one writer; batch ids of a writer only grow.

    Attributes:
        writer_id: the streaming query's id, or what ``lsm.writer.id`` says.
        batch_id: number of the batch.
    """

    writer_id: str
    batch_id: int

    @classmethod
    def of_batch(cls, options: Options, batch_id: int | None) -> BatchIdentity | None:
        """The identity of a numbered batch of the writer that the options name; None for one without number.

        Raises:
            ConfigError: the options name no writer.
        """
        if batch_id is None:
            return None
        writer = options[WRITER_ID]
        if writer is None:
            raise ConfigError(f"a batch_id needs the option {WRITER_ID.key}, which names who counts the batches")
        return cls(writer, batch_id)


@dataclass(frozen=True, slots=True)
class LastBatch:
    """A writer's last committed batch.

    Attributes:
        batch_id: its number.
        committed_ms: when it was committed, milliseconds since the epoch.
        open_deletes: per source of events the key of the delete that came last, whose tombstone may follow.
    """

    batch_id: int
    committed_ms: int
    open_deletes: Mapping[str, str] = field(default_factory=dict)

    def fields(self) -> list[object]:
        """As stored; most writers have no open deletes."""
        return [self.batch_id, self.committed_ms, *([dict(self.open_deletes)] if self.open_deletes else [])]

    @classmethod
    def of_fields(cls, batch_id: object, committed_ms: object, open_deletes: object = None) -> LastBatch:
        """Read back `fields`.

        Raises:
            ValueError, TypeError: they are something else.
        """
        if open_deletes is not None and not isinstance(open_deletes, dict):
            raise TypeError("open deletes are not an object")
        deletes = {str(source): str(key) for source, key in (open_deletes or {}).items()}
        return cls(int(str(batch_id)), int(str(committed_ms)), deletes)


@dataclass(frozen=True, slots=True)
class WriterLedger:
    """Writer id -> its last batch. Every commit holds the whole ledger, so that it outlives archiving."""

    writers: Mapping[str, LastBatch] = field(default_factory=dict)

    @classmethod
    def of(cls, timeline: Timeline) -> WriterLedger:
        """The ledger of the newest completed write that has one; other programs' commits have none.

        Raises:
            CorruptFileError: it cannot be read.
        """
        for write in reversed(timeline.completed_writes):
            text = timeline.read_commit(write).extra.get(LEDGER_KEY)
            if text is not None:
                return cls.decode(text, write.path)
        return cls()

    @classmethod
    def decode(cls, text: str, source: str) -> WriterLedger:
        """Read ``{writer id: [batch id, committed ms, open deletes if any]}``.

        Raises:
            CorruptFileError: `text`, from the file `source`, is something else.
        """
        try:
            fields = json.loads(text)
            return cls({str(writer): LastBatch.of_fields(*last) for writer, last in fields.items()})
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptFileError(f"{source}: {LEDGER_KEY}={text:.200}: {error}; restore the file") from None

    def encode(self) -> str:
        """The ledger as JSON."""
        fields = {writer: last.fields() for writer, last in self.writers.items()}
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    def has(self, identity: BatchIdentity) -> bool:
        """Whether this batch, or a later one of its writer, is committed."""
        last = self.writers.get(identity.writer_id)
        return last is not None and identity.batch_id <= last.batch_id

    def advanced(
        self,
        identity: BatchIdentity | None,
        now_ms: int,
        idle_days: int,
        maximum: int,
        open_deletes: Mapping[str, str] | None = None,
    ) -> tuple[WriterLedger, tuple[str, ...]]:
        """The ledger of the next commit.

        Args:
            identity: the batch that is committed; None when the write has no identity.
            now_ms: the time of the commit, milliseconds since the epoch.
            idle_days: writers without a commit for longer are forgotten.
            open_deletes: what the committing writer's next batch has to know.
            maximum: of more writers than this, those whose last commit is oldest are forgotten.

        Returns:
            The ledger, and the writers that were forgotten; never the writer that commits.
        """
        writers = dict(self.writers)
        own: dict[str, LastBatch] = {}
        if identity is not None:
            writers.pop(identity.writer_id, None)
            own[identity.writer_id] = LastBatch(identity.batch_id, now_ms, open_deletes or {})
        newest_first = sorted(writers, key=lambda writer: (-writers[writer].committed_ms, writer))
        recent = [w for w in newest_first if now_ms - writers[w].committed_ms <= idle_days * _DAY_MS]
        kept = recent[: max(0, maximum - len(own))]
        dropped = tuple(sorted(writers.keys() - set(kept)))
        return WriterLedger({**{writer: writers[writer] for writer in kept}, **own}), dropped
