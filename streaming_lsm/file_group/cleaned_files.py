"""Read which files a clean deletes."""

from __future__ import annotations

from collections.abc import Mapping

from streaming_lsm.format.actions.clean import CleanMetadata, CleanPlan
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import Instant, State


def cleaned_files(storage: Storage, clean: Instant) -> Mapping[str, tuple[str, ...]]:
    """Read the files that a clean has deleted, or, while it is pending, those of its plan, by partition path.

    Raises:
        FileNotFoundError: it was completed, archived or rolled back since it was listed.
        CorruptFileError: its content cannot be read.
    """
    if clean.is_completed:
        return CleanMetadata.decode(storage.read(clean.path), clean.path).files
    plan = clean.at(State.REQUESTED).path
    return CleanPlan.decode(storage.read(plan), plan).files
