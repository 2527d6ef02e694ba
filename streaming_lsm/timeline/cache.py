"""Cache the timelines that an open table has loaded."""

from __future__ import annotations

from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.timeline import Timeline


class TimelineCache:
    """Load the timelines of one open table and of its metadata table incrementally.

    Every load lists the folder, and parses only names that the previous load has not parsed. Each open table has a
    cache of its own.

    Attributes:
        is_recovered: whether a transaction has recovered the table since it was opened.
    """

    def __init__(self) -> None:
        self.is_recovered = False
        self._last: dict[tuple[str, int], Timeline] = {}

    def load(self, storage: Storage, layout: int = 2) -> Timeline:
        """Load the current timeline; raises as `Timeline.load`."""
        key = (storage.uri, layout)
        timeline = Timeline.load(storage, layout, self._last.get(key))
        self._last[key] = timeline
        return timeline
