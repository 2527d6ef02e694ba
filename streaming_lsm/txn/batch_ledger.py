"""Keep the ledger of committed batches, by which a replayed batch is recognised.

The *ledger* maps each writer to its last committed batch. Every commit contains the whole ledger in its extra metadata
(docs/format/02-timeline.md, "Ledger of writers").
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from streaming_lsm.bounded_json import parse_json
from streaming_lsm.config import WRITER_ID, WRITER_MAX, Options
from streaming_lsm.errors import ConfigError, CorruptFileError
from streaming_lsm.timeline.instant import Instant
from streaming_lsm.timeline.timeline import Timeline

LEDGER_KEY = "lsm.writers"
"""Key of the ledger in a commit's extra metadata."""

_DAY_MS = 86_400_000
_NEEDED_FIELDS = 2
_MOST_TOPICS = 2


@dataclass(frozen=True, slots=True)
class BatchIdentity:
    """Identify one batch of one writer; the batch ids of a writer ascend.

    Attributes:
        writer_id: id of the streaming query, or the value of ``lsm.writer.id``.
        batch_id: number of the batch.
    """

    writer_id: str
    batch_id: int

    @classmethod
    def of_batch(cls, options: Options, batch_id: int | None) -> BatchIdentity | None:
        """Return the identity of a batch of the writer that the options name; None without a batch id.

        Raises:
            ConfigError: the options name no writer.
        """
        if batch_id is None:
            return None
        writer = options[WRITER_ID]
        if writer is None:
            raise ConfigError(f"a batch_id needs the option {WRITER_ID.key}, which names the writer of the batch")
        return cls(writer, batch_id)


@dataclass(frozen=True, slots=True)
class LastBatch:
    """Record the last committed batch of a writer.

    Attributes:
        batch_id: number of the batch.
        committed_ms: time of the commit, milliseconds since the epoch.
        open_deletes: by source of events, the key of the last delete, whose tombstone may follow in the next batch.
        topics: topics of the events of this and earlier batches, at most two: a second one tells that they share the
            table.
    """

    batch_id: int
    committed_ms: int
    open_deletes: Mapping[str, str] = field(default_factory=dict)
    topics: tuple[str, ...] = ()

    def fields(self) -> list[object]:
        """Return the fields as stored; those at the end are left out if they are empty."""
        found: list[object] = [self.batch_id, self.committed_ms, dict(self.open_deletes), list(self.topics)]
        while not found[-1] and len(found) > _NEEDED_FIELDS:
            found.pop()
        return found

    @classmethod
    def of_fields(
        cls, batch_id: object, committed_ms: object, open_deletes: object = None, topics: object = None
    ) -> LastBatch:
        """Create the record from its stored `fields`.

        Raises:
            ValueError, TypeError: a field has another type.
        """
        if open_deletes is not None and not isinstance(open_deletes, dict):
            raise TypeError("open deletes are not an object")
        if topics is not None and not isinstance(topics, list):
            raise TypeError("topics are not a list")
        deletes = {str(source): str(key) for source, key in (open_deletes or {}).items()}
        return cls(int(str(batch_id)), int(str(committed_ms)), deletes, tuple(map(str, topics or ())))


@dataclass(frozen=True, slots=True)
class WriterLedger:
    """Map each writer id to its last batch; every commit contains all of it, so that archiving does not lose it."""

    writers: Mapping[str, LastBatch] = field(default_factory=dict)

    @classmethod
    def of(cls, timeline: Timeline) -> WriterLedger:
        """Read the ledger of the newest completed write that has one; commits of other programs have none.

        Raises:
            CorruptFileError: the ledger cannot be read.
        """
        write = with_ledger(timeline, timeline.newest_first())
        return cls() if write is None else cls.of_write(timeline, write)

    @classmethod
    def of_write(cls, timeline: Timeline, write: Instant) -> WriterLedger:
        """Read the ledger of a completed write that has one; raises as `of`."""
        return cls.decode(timeline.read_commit(write).extra[LEDGER_KEY], write.path)

    @classmethod
    def decode(cls, text: str, source: str) -> WriterLedger:
        """Decode ``{writer id: [batch id, committed ms, open deletes, topics]}``.

        Raises:
            CorruptFileError: `text`, from the file `source`, has another form.
        """
        try:
            fields = parse_json(text)
            return cls({str(writer): LastBatch.of_fields(*last) for writer, last in fields.items()})
        except (ValueError, TypeError, AttributeError, RecursionError) as error:
            raise CorruptFileError(f"{source}: {LEDGER_KEY}={text:.200}: {error}; restore the file") from None

    def encode(self) -> str:
        """Encode the ledger as JSON.

        Raises:
            ConfigError: readers would refuse the JSON.
        """
        fields = {writer: last.fields() for writer, last in self.writers.items()}
        text = json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        try:
            parse_json(text)
        except ValueError as error:
            raise ConfigError(
                f"the ledger of {len(fields)} writers would be refused by readers ({error}): lower {WRITER_MAX.key}, "
                f"or shorten {WRITER_ID.key}"
            ) from None
        return text

    def has(self, identity: BatchIdentity) -> bool:
        """Return whether this batch, or a later one of its writer, is committed."""
        last = self.writers.get(identity.writer_id)
        return last is not None and identity.batch_id <= last.batch_id

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics whose events the writers have written, ascending; of each writer the first two."""
        return tuple(sorted({topic for last in self.writers.values() for topic in last.topics}))

    def advanced(
        self,
        identity: BatchIdentity | None,
        now_ms: int,
        idle_days: int,
        maximum: int,
        open_deletes: Mapping[str, str] | None = None,
        topics: Iterable[str] = (),
    ) -> tuple[WriterLedger, tuple[str, ...]]:
        """Return the ledger of the next commit.

        Args:
            identity: the batch that is committed; None for a write without identity.
            now_ms: time of the commit, milliseconds since the epoch.
            idle_days: days without a commit after which a writer is dropped.
            maximum: limit of writers; those whose last commit is oldest are dropped.
            open_deletes: open deletes of the committing writer, see `LastBatch`.
            topics: topics of the events of the batch.

        Returns:
            The ledger, and the dropped writers; the committing writer is never dropped.
        """
        writers = dict(self.writers)
        own: dict[str, LastBatch] = {}
        if identity is not None:
            last = writers.pop(identity.writer_id, None)
            every = dict.fromkeys([*(last.topics if last else ()), *sorted(topics)])
            own[identity.writer_id] = LastBatch(
                identity.batch_id, now_ms, open_deletes or {}, tuple(every)[:_MOST_TOPICS]
            )
        newest_first = sorted(writers, key=lambda writer: (-writers[writer].committed_ms, writer))
        recent = [w for w in newest_first if now_ms - writers[w].committed_ms <= idle_days * _DAY_MS]
        kept = recent[: max(0, maximum - len(own))]
        dropped = tuple(sorted(writers.keys() - set(kept)))
        return WriterLedger({**{writer: writers[writer] for writer in kept}, **own}), dropped


def with_ledger(timeline: Timeline, writes: Iterable[Instant]) -> Instant | None:
    """Return the first of some completed writes whose commit has a ledger; None if there is none."""
    return next((write for write in writes if LEDGER_KEY in timeline.read_commit(write).extra), None)


def archived_ledger(state: Timeline) -> Instant | None:
    """Return the archived write that has the ledger of a state; None if one on the timeline has it, or it is empty.

    Writers would not find it, and write replayed batches again. The history is read if none on the timeline has one.

    Args:
        state: the timeline, restricted to the writes of the state.

    Raises:
        CorruptFileError: the ledger cannot be read.
    """
    if with_ledger(state, state.newest_first()) is not None:
        return None
    active, until = {write.requested for write in state.completed_writes}, state.until or "~"
    archived = [write for write in state.history.writes().values() if write.requested not in active]
    before = [write for write in archived if (write.completed or "") <= until]
    found = with_ledger(state, sorted(before, key=lambda write: write.completed or "", reverse=True))
    return found if found is not None and WriterLedger.of_write(state, found).writers else None
