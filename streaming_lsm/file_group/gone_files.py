"""Tell why a file of a listed slice is gone when it is opened: a clean deleted it meanwhile, or it was lost."""

from __future__ import annotations

from contextlib import suppress

from streaming_lsm.errors import CorruptFileError, LsmError, ReadOvertaken
from streaming_lsm.file_group.cleaned_files import cleaned_files
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.instant import FLAT, FLAT_FOLDER, TIMELINE_FOLDER, Instant

_CLEANED = (".clean", ".clean.inflight")
_LAYOUTS = ((TIMELINE_FOLDER, 2), (FLAT_FOLDER, FLAT))


def gone_file(storage: Storage, path: str) -> LsmError:
    """Build the error for a file that is gone when it is opened: `ReadOvertaken` if a clean of the timeline deleted it.

    Args:
        storage: the table's files.
        path: relative to the table.
    """
    clean = _clean_of(storage, path)
    if clean is not None:
        return ReadOvertaken(
            f"{path}: clean {clean} deleted the file before it was read: read again, and keep files for as long as a "
            "read takes (hoodie.clean.commits.retained, hoodie.clean.hours.retained or "
            "hoodie.clean.fileversions.retained, by the policy)"
        )
    return CorruptFileError(
        f"{path}: the file is missing though its instant is completed: if a clean or a rollback deleted it "
        "before it was read, read again (hoodie.clean.commits.retained keeps more), else restore it"
    )


def _clean_of(storage: Storage, path: str) -> str | None:
    """Return the requested time of the clean on the timeline that deletes a file."""
    folder, _, file = path.rpartition("/")
    for place, layout in _LAYOUTS:
        for name in sorted(storage.names(place), reverse=True):
            clean = Instant.parse(name, layout) if name.endswith(_CLEANED) else None
            with suppress(CorruptFileError, FileNotFoundError):  # it was archived meanwhile
                deleted = () if clean is None else cleaned_files(storage, clean).get(folder, ())
                if clean is not None and any(found.rpartition("/")[2] == file for found in deleted):
                    return clean.requested
    return None
