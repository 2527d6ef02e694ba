"""Represent instants, and parse and print their file names (docs/format/02-timeline.md, "File names").

An *action* is one change of a table: a write, a table service, a rollback. An *instant* is an action in one *state*
(requested, inflight, completed), each of which is recorded by a file of the timeline.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from streaming_lsm.errors import UnsupportedTable

TIMELINE_FOLDER = ".hoodie/timeline"
FLAT_FOLDER = ".hoodie"
"""Folder of the timeline of layout 1 (docs/format/02-timeline.md, "Layout 1")."""
FLAT = 1
"""Timeline layout of tables up to version 6."""

WRITE_ACTIONS = frozenset({"commit", "deltacommit", "replacecommit"})
"""Actions whose completion makes data files visible."""
BASE_ACTIONS = frozenset({"commit", "replacecommit"})
"""Completed writes that may supersede file slices: they create base files, or replace file groups."""

_COMPLETES_AS = {"compaction": "commit", "logcompaction": "deltacommit", "clustering": "replacecommit"}
_ACTIONS = (
    WRITE_ACTIONS | _COMPLETES_AS.keys() | {"clean", "rollback", "restore", "savepoint", "indexing", "schemacommit"}
)
WRITING_ACTIONS = WRITE_ACTIONS | {action for action, completed in _COMPLETES_AS.items() if completed in WRITE_ACTIONS}
"""`WRITE_ACTIONS` and the pending actions that complete as one of them."""
_NAME = re.compile(r"(?P<requested>[0-9]{1,32})(_(?P<completed>[0-9]{1,32}))?\.(?P<word>\w+)(\.(?P<state>\w+))?")


Action = tuple[str, str]
"""Identity of an action, common to its states: requested time, and name in the completed state."""


class State(StrEnum):
    """Enumerate the states of an action.

    Attributes:
        rank: position in the order of states.
    """

    REQUESTED = "requested", 0
    INFLIGHT = "inflight", 1
    COMPLETED = "completed", 2

    rank: int

    def __new__(cls, text: str, rank: int) -> State:
        """Create the state that file names call `text`."""
        member = str.__new__(cls, text)
        member._value_ = text
        member.rank = rank
        return member


_STATES: dict[str, State] = {state.value: state for state in State}


@dataclass(frozen=True, slots=True)
class Instant:
    """Represent one action in one state.

    Attributes:
        requested: requested time, which names the action and the files that it writes.
        action: name of the action; a pending table service has another name than its completed action (``compaction``
            completes as ``commit``).
        state: state of the action.
        completed: completion time; None while the action is pending. In layout 1 it is the requested time.
        layout: timeline layout, on which the file names depend.
    """

    requested: str
    action: str
    state: State
    completed: str | None = None
    layout: int = 2

    def __hash__(self) -> int:
        # Sets hold thousands of instants: the hash of a text is cached, and few actions share a requested time.
        return hash(self.requested)

    @property
    def is_completed(self) -> bool:
        """Whether the action is completed."""
        return self.state is State.COMPLETED

    @property
    def is_write(self) -> bool:
        """Whether the completion of the action makes data files visible."""
        return self.action in WRITING_ACTIONS

    @property
    def completes_as(self) -> str:
        """The action's name in the completed state."""
        return self.completed_action(self.action)

    @property
    def of_action(self) -> Action:
        """Identity of the action."""
        return self.requested, self.completes_as

    @staticmethod
    def completed_action(action: str) -> str:
        """Return the name of an action in the completed state."""
        return _COMPLETES_AS.get(action, action)

    @property
    def file_name(self) -> str:
        """Name of the file of this state; that of an inflight commit does not contain the action."""
        if self.state is State.COMPLETED:
            time = self.requested if self.layout == FLAT else f"{self.requested}_{self.completed}"
            return f"{time}.{self.action}"
        if self.state is State.INFLIGHT and self.action == "commit":
            return f"{self.requested}.inflight"
        return f"{self.requested}.{self.action}.{self.state}"

    @property
    def path(self) -> str:
        """Path of the file of this state, relative to the table."""
        return f"{FLAT_FOLDER if self.layout == FLAT else TIMELINE_FOLDER}/{self.file_name}"

    def at(self, state: State) -> Instant:
        """Return the same action in another pending state."""
        return Instant(self.requested, self.action, state, None, self.layout)

    def completed_at(self, time: str) -> Instant:
        """Return the completed instant of the same action."""
        return Instant(self.requested, self.completes_as, State.COMPLETED, time)

    def pending_paths(self) -> tuple[str, ...]:
        """Return the paths of all files that may record the action while it is pending, the latest state first."""
        inflight = self.at(State.INFLIGHT).path
        other = f"{TIMELINE_FOLDER}/{self.requested}.commit.inflight"
        requested = self.at(State.REQUESTED).path
        return (inflight, other, requested) if self.action == "commit" else (inflight, requested)

    @classmethod
    def parse(cls, name: str, layout: int = 2) -> Instant | None:
        """Parse a file name; return None for other files (checksums, folders, temporary files).

        Args:
            name: file name without folders.
            layout: the table's timeline layout.

        Raises:
            UnsupportedTable: the action is unknown to this release, or the name is of another timeline layout.
        """
        match = _NAME.fullmatch(name)
        if match is None:
            return None
        requested, completed, word, state = match["requested"], match["completed"], match["word"], match["state"]
        if completed is None and state is None and word == State.INFLIGHT:
            return cls(requested, "commit", State.INFLIGHT, None, layout)
        if state not in (None, State.REQUESTED, State.INFLIGHT):
            return None
        if word not in _ACTIONS:
            raise UnsupportedTable(f"{TIMELINE_FOLDER}/{name}: action {word!r} is not known to this release")
        if layout == FLAT and completed is None:
            done = state is None
            return cls(requested, word, _STATES[state or "completed"], requested if done else None, layout)
        if (completed is None) == (state is None):
            raise UnsupportedTable(
                f"{TIMELINE_FOLDER}/{name}: a completed instant has a completion time and a pending one has none; "
                f"this is not a timeline of layout {layout}"
            )
        if state is None:
            return cls(requested, word, State.COMPLETED, completed)
        return cls(requested, word, _STATES[state])
