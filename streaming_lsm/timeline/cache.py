"""The timelines that an open table has loaded."""

from __future__ import annotations

from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.timeline import Timeline


class TimelineCache:
    """Loads the timelines of one open table and of its metadata table, each with the one loaded before it.

    Every load lists the folder; names that the load before has parsed are not parsed again. An open table owns a cache,
    as each process has names of its own.
    """

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], Timeline] = {}

    def load(self, storage: Storage, layout: int = 2) -> Timeline:
        """The timeline as it is now; raises as `Timeline.load`."""
        key = (storage.uri, layout)
        timeline = Timeline.load(storage, layout, self._last.get(key))
        self._last[key] = timeline
        return timeline

    def has(self, storage: Storage, layout: int = 2) -> bool:
        """Whether the timeline was loaded before."""
        return (storage.uri, layout) in self._last
