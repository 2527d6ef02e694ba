"""List file slices consistently: retry if a clean or rollback deleted files after the timeline was loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from streaming_lsm.errors import CommitConflict, CorruptFileError
from streaming_lsm.file_group.cleaned_files import cleaned_files
from streaming_lsm.file_group.file_system_view import FileSlice, FileSystemView
from streaming_lsm.file_group.latest_slices import FileSlices
from streaming_lsm.file_group.lost_files import check_files
from streaming_lsm.format.table.file_names import BaseFileName, parse_file_name
from streaming_lsm.storage.base import Names
from streaming_lsm.timeline.archive import History
from streaming_lsm.timeline.instant import FLAT, Instant
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.lost_completion import planned_rollbacks

_ATTEMPTS = 5
_CLEANS = (".clean", ".clean.inflight")

Groups = Mapping[tuple[str, str], FileSlice]


def list_file_slices(look: Callable[[], FileSystemView]) -> tuple[Timeline, FileSlices]:
    """List the latest slice of every file group, together with the timeline it was listed from.

    The timeline is loaded before the folders are listed. A clean that runs in between may delete a slice for which the
    loaded timeline has no successor, and its rows would be missing; then the timeline is loaded again. So it is if a
    write of the loaded timeline was rolled back since.

    Args:
        look: loads the timeline and returns a view on it.

    Raises:
        CommitConflict: a clean deleted files during every attempt, or is deleting those of the requested state.
        UnsupportedTable: see `FileSystemView.slices`.
        CorruptFileError: a committed file is missing, see `check_files`.
    """
    time = ""
    for _ in range(_ATTEMPTS):
        view = look()
        try:
            slices = view.slices()
        except CorruptFileError:  # the commit of a rolled back replacecommit cannot be read
            taking = _rolled_back_since(view.timeline)
            if not taking:
                raise
            time = taking[0]
            continue
        names = view.timeline.storage.names(view.timeline.folder)
        cleans = _cleans_since(view.timeline, names)
        groups = {(found.partition_path, found.file_id): found for found in slices} if cleans else {}
        taking = [clean.requested for clean in cleans if _takes_from(clean, view, groups)]
        taking = taking or _archived_since(view.timeline, names, cleaned=bool(cleans))
        if not taking:
            try:
                check_files(view, slices)
                return view.timeline, slices
            except (CommitConflict, CorruptFileError):
                taking = _rolled_back_since(view.timeline)
                if not taking:
                    raise
        time = taking[0]
    raise CommitConflict(
        f"in {_ATTEMPTS} attempts a clean or rollback, the last one at {time}, deleted files while they were listed: "
        "read again; for an as-of read choose a later instant (hoodie.clean.commits.retained keeps more)"
    )


def _cleans_since(timeline: Timeline, names: Names) -> list[Instant]:
    """List the cleans that may have deleted files after `timeline` was loaded, each in its latest state."""
    known = {clean.requested for clean in timeline.completed_cleans}
    found: dict[str, Instant] = {}
    for clean in (Instant.parse(name, timeline.layout) for name in names if name.endswith(_CLEANS)):
        if clean is not None and (clean.is_completed or clean.requested not in found):
            found[clean.requested] = clean
    return [clean for clean in found.values() if clean.requested not in known]


def _archived_since(timeline: Timeline, names: Names, *, cleaned: bool) -> list[str]:
    """Return the newest archived clean if it was completed after `timeline` was loaded, which took long then.

    The history is read only if an action has left the timeline since, or `cleaned`: if the table was cleaned since,
    another clean before that may be archived already.
    """
    loaded = timeline.whole
    if timeline.layout == FLAT or (not cleaned and {found.file_name for found in loaded.instants}.issubset(names)):
        return []
    newest = History(timeline.storage).newest_clean()
    return [newest.requested] if newest is not None and (newest.completed or "") > loaded.last_time else []


def _rolled_back_since(timeline: Timeline) -> list[str]:
    """Return the rollbacks of writes that were completed when `timeline` was loaded.

    A pending or archived one is returned as its write.
    """
    if timeline.layout == FLAT:
        return []
    now = Timeline.load(timeline.storage, timeline.layout)
    left = frozenset(now.completed_writes)
    gone = [write.requested for write in timeline.whole.completed_writes if write not in left]
    if not gone:
        return []
    finished, planned = now.finished_rollbacks(since=gone[0]), planned_rollbacks(timeline.storage, now)
    undone = [time for time in gone if time in planned or now.is_undone(time)]
    return [finished[time].requested if time in finished else time for time in undone]


def _takes_from(clean: Instant, view: FileSystemView, groups: Groups) -> bool:
    """Return whether a clean deletes files that the view's timeline makes visible and the listed slices lack."""
    try:
        files = cleaned_files(view.timeline.storage, clean)
    except FileNotFoundError:  # the clean was completed, archived, or rolled back since it was listed
        ended = History(view.timeline.storage).completion_of_clean(clean.requested)
        # A writer that was stopped may have created its inflight file again, when others had archived it.
        return ended is None or ended > view.timeline.whole.last_time
    if view.choose is not None:
        # Of other partitions the slices may lack because they were not listed.
        asked = view.choose(list(files)).tolist()
        files = {
            partition: names for (partition, names), is_asked in zip(files.items(), asked, strict=True) if is_asked
        }
    return any(
        _is_missed(partition, file.rpartition("/")[2], view, groups)
        for partition, found in files.items()
        for file in found
    )


def _is_missed(partition: str, file: str, view: FileSystemView, groups: Groups) -> bool:
    name = parse_file_name(file, rfc103_names=True)
    if name is None or view.is_replaced(partition, name.file_id) or not view.counts(name):
        return False
    found = groups.get((partition, name.file_id))
    if isinstance(name, BaseFileName):
        return found is None or found.base is None or name.instant > found.base.name.instant
    if name.is_change_log or (found is not None and name in [log.name for log in found.logs]):
        return False
    return found is None or found.base is None or view.log_time(name) >= found.base.name.instant
