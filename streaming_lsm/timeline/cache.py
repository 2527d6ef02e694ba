"""Cache the timelines that an open table has loaded."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass

from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.timeline import Timeline


@dataclass(frozen=True, slots=True)
class KnownMetadata:
    """State what a transaction knew of the metadata table of a table.

    Attributes:
        properties: those of the table, which name the partitions.
        timeline: timeline of the metadata table; None if there is none.
    """

    properties: Mapping[str, str]
    timeline: Timeline | None


@dataclass(frozen=True, slots=True)
class Known:
    """State what a transaction knew of a table when it released the lock.

    Attributes:
        trace: what the lock left behind: nobody has changed the timeline while it is there.
        timeline: the timeline, without actions of others that are pending.
        metadata: what is known of the metadata table.
        looked_s: when the folders were last listed, in seconds of a clock that only goes forward.
    """

    trace: bytes
    timeline: Timeline
    metadata: KnownMetadata
    looked_s: float


class TimelineCache:
    """Load the timelines of one open table and of its metadata table incrementally.

    Every load lists the folder, and parses only names that the previous load has not parsed. Each open table has a
    cache of its own.

    Attributes:
        is_recovered: whether a transaction has recovered the table since it was opened.
        known: what is known of the table as long as nobody else acquires its lock; None if it has to be listed.
        is_config_checked: whether the stored config was compared since the folders were last listed.
        may_be_anew: whether the newest action of a table is gone since it was seen, as if the table was deleted and
            created again: its config is compared before it is read. So it is if there was no action.
    """

    def __init__(self) -> None:
        self.is_recovered = self.is_config_checked = self.may_be_anew = False
        self.known: Known | None = None
        self._last: dict[tuple[str, int], Timeline] = {}

    def __reduce__(self) -> tuple[type[TimelineCache], tuple[()]]:
        """Leave what is cached behind: a task of another process loads anew."""
        return TimelineCache, ()

    def load(self, storage: Storage, layout: int = 2) -> Timeline:
        """Load the current timeline; raises as `Timeline.load`."""
        key = (storage.uri, layout)
        last = self._last.get(key)
        timeline = Timeline.load(storage, layout, last)
        if last is not None and not (last.instants and _is_on(timeline, last.instants[-1].requested)):
            self.may_be_anew = True
        self._last[key] = timeline
        return timeline


def _is_on(timeline: Timeline, requested: str) -> bool:
    at = bisect_left(timeline.instants, requested, key=lambda instant: instant.requested)
    return at < len(timeline.instants) and timeline.instants[at].requested == requested
