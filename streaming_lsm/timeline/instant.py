"""One action on a table and the file names that record its state (docs/format/02-timeline.md, "File names")."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

from streaming_lsm.errors import UnsupportedTable

TIMELINE_FOLDER = ".hoodie/timeline"
FLAT_FOLDER = ".hoodie"
"""Where the timeline of layout 1 lies (docs/format/02-timeline.md, "Layout 1")."""
FLAT = 1
"""Timeline layout of tables up to version 6."""

WRITE_ACTIONS = frozenset({"commit", "deltacommit", "replacecommit"})
"""Actions whose completion makes data files visible."""

_COMPLETES_AS = {"compaction": "commit", "logcompaction": "deltacommit", "clustering": "replacecommit"}
_ACTIONS = (
    WRITE_ACTIONS | _COMPLETES_AS.keys() | {"clean", "rollback", "restore", "savepoint", "indexing", "schemacommit"}
)
WRITING_ACTIONS = WRITE_ACTIONS | {action for action, completed in _COMPLETES_AS.items() if completed in WRITE_ACTIONS}
"""Actions that amount to one of `WRITE_ACTIONS` once they are completed."""
_NAME = re.compile(r"(?P<requested>[0-9]{1,32})(_(?P<completed>[0-9]{1,32}))?\.(?P<word>\w+)(\.(?P<state>\w+))?")


Action = tuple[str, str]
"""What the states of one action share: requested time, and the action's name in the completed state."""


class State(StrEnum):
    """How far an action has come.

    Attributes:
        rank: place in the course of an action.
    """

    REQUESTED = "requested", 0
    INFLIGHT = "inflight", 1
    COMPLETED = "completed", 2

    rank: int

    def __new__(cls, text: str, rank: int) -> State:
        """The state that file names call `text`."""
        member = str.__new__(cls, text)
        member._value_ = text
        member.rank = rank
        return member


_STATES: dict[str, State] = {state.value: state for state in State}


@dataclass(frozen=True, slots=True)
class Instant:
    """One action in one state.

    Attributes:
        requested: the time that names the action and the files it writes.
        action: what it does; services that wait have names of their own (``compaction`` completes as ``commit``).
        state: how far it has come.
        completed: the completion time, None until then. An action of layout 1 has none but its requested time.
        layout: the timeline layout; the names of files differ.
    """

    requested: str
    action: str
    state: State
    completed: str | None = None
    layout: int = 2

    def __hash__(self) -> int:
        # Timelines are compared as sets of thousands; a text remembers its hash, and hardly two actions share the time.
        return hash(self.requested)

    @property
    def is_completed(self) -> bool:
        """Whether the action has taken effect."""
        return self.state is State.COMPLETED

    @property
    def is_write(self) -> bool:
        """Whether data files become visible by it, once it is completed."""
        return self.action in WRITING_ACTIONS

    @property
    def completes_as(self) -> str:
        """The action's name in the completed state."""
        return self.completed_action(self.action)

    @property
    def of_action(self) -> Action:
        """The action of which this is a state."""
        return self.requested, self.completes_as

    @staticmethod
    def completed_action(action: str) -> str:
        """The name under which an action completes."""
        return _COMPLETES_AS.get(action, action)

    @property
    def file_name(self) -> str:
        """Name of the file of this state; an inflight commit has no action in it."""
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
        """The same action in another pending state."""
        return Instant(self.requested, self.action, state, None, self.layout)

    def completed_at(self, time: str) -> Instant:
        """The same action, completed."""
        return Instant(self.requested, self.completes_as, State.COMPLETED, time)

    def pending_paths(self) -> tuple[str, ...]:
        """Paths of all files that may record this action before completion, the latest state first."""
        inflight = self.at(State.INFLIGHT).path
        other = f"{TIMELINE_FOLDER}/{self.requested}.commit.inflight"
        requested = self.at(State.REQUESTED).path
        return (inflight, other, requested) if self.action == "commit" else (inflight, requested)

    @classmethod
    def parse(cls, name: str, layout: int = 2) -> Instant | None:
        """The instant of a file name; None when the name is of another kind (checksums, folders, temporaries).

        Args:
            name: file name without folders.
            layout: the table's timeline layout.

        Raises:
            UnsupportedTable: an action this release does not know, or a completed file of the older layout.
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
