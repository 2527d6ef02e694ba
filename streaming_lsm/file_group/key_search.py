"""Search the logs of a slice for some record keys: newer logs tell of older ones whether these may hold a key.

Logs are looked at from the newest to the oldest. What the accumulated key entry of an open log rules out is not opened.
An entry counts for a log of its name and size only: others are of logs that were compacted, rolled back or never
committed. A log that no entry covers is opened. See docs/format/03-native-logs.md, "Key entries".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from streaming_lsm.arrow.columns import Flags
from streaming_lsm.file_group.data_file import DataFile
from streaming_lsm.file_group.file_system_view import LogFile
from streaming_lsm.file_group.key_filters import KeyFilters, WantedKeys


@dataclass
class KeySearch:
    """Learns which logs of one slice hold none of some keys.

    Attributes:
        wanted: the keys.
        ruled_out: number of logs that were not opened.
        closed: other logs that their own key entries rule out, and that were left out for that.
    """

    wanted: WantedKeys
    ruled_out: int = 0
    closed: list[DataFile] = field(default_factory=list)
    _told: dict[tuple[str, int], bool] = field(default_factory=dict)

    def rules_out(self, log: LogFile) -> bool:
        """Return whether a log is known to hold none of the keys, and count it then."""
        absent = not self._told.get((log.path.rpartition("/")[2], log.size), True)
        self.ruled_out += absent
        return absent

    def learn(self, file: DataFile) -> None:
        """Learn what the accumulated key entry of an open log tells of others."""
        index = file.key_index
        if index is None:
            return
        logs, filters = index.covered
        if not logs:
            return
        for log, held in zip(logs, filters.may_hold(self.wanted).tolist(), strict=True):
            self._told.setdefault((log.name, log.size), held)

    def may_be_in(self, file: DataFile) -> bool:
        """Return whether an open file may hold a key, by its own key entry."""
        return bool(files_of_keys([file], self.wanted)[0])


def files_of_keys(files: Sequence[DataFile], wanted: WantedKeys) -> Flags:
    """Return which files may hold a key, by the own key entries of those that are open or kept: bool (files,)."""
    found = np.ones(len(files), np.bool_)
    entries = {
        place: index.own
        for place, file in enumerate(files)
        if (index := file.key_index) is not None and index.own is not None
    }
    if entries:
        found[list(entries)] = KeyFilters.of(list(entries.values())).may_hold(wanted)
    return found
