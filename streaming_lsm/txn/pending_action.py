"""The pending action of one transaction: from its first file on the timeline until it is completed or given up."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress

from streaming_lsm.errors import CommitUnknown, CorruptFileError, Fenced
from streaming_lsm.format.avro.container import encode_record
from streaming_lsm.lock.heartbeat import Claim, Heartbeat, revoke_heartbeat, waiting_path
from streaming_lsm.lock.lock import LockWait, TableLock
from streaming_lsm.lock.markers import (
    Deletion,
    delete_files,
    delete_markers,
    in_portions,
    marker_folder,
    marker_of,
    sweep_partitions,
)
from streaming_lsm.storage.base import Storage
from streaming_lsm.timeline.action_kind import OnFailure, kind_of, planned_kind
from streaming_lsm.timeline.instant import Instant, State
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.decision import confirm_published, delete_decisions, open_run, publish, undo, undo_run
from streaming_lsm.txn.decision_record import DECISION_FOLDER, decision_path
from streaming_lsm.txn.indexing import leave_timeline
from streaming_lsm.txn.locked_table import LockedTable
from streaming_lsm.txn.plan_record import accept_plan, plan_record_path
from streaming_lsm.txn.planned_actions import create_pending, delete_uncommitted_files, revert_to_requested
from streaming_lsm.txn.rollback import roll_back

_LOG = logging.getLogger(__name__)

Run = Callable[[Deletion, Iterable[Sequence[str]]], Iterable[int]]
"""Runs a task for several items, on threads or executors."""
_PORTION = 64


class PendingAction:
    """A write, or a run of a planned action, that this transaction has begun and not completed.

    Attributes:
        instant: the action, as it was begun or scheduled.
        claim: its heartbeat.
        is_published: whether it may be decided: from then on this transaction does not undo it.
    """

    def __init__(
        self, storage: Storage, lock: TableLock, heartbeat: Heartbeat, instant: Instant, *, alone: bool = False
    ) -> None:
        """Claim the instant, so that it belongs to this transaction; the lock is held.

        Args:
            alone: whether other writes are to wait for it.

        Raises:
            Fenced: another writer has claimed the instant, or has recorded a run of it.
        """
        self._storage = storage
        self._lock = lock
        self._heartbeat = heartbeat
        self.instant = instant
        self.is_published = False
        self._reconciled: frozenset[str] | None = None
        self._kind = kind_of(instant.action)
        self._decision_path = open_run(storage, instant) if self._kind.has_runs else decision_path(instant.requested)
        self.claim = Claim(storage, instant.requested, lock.owner, alone=alone)
        heartbeat.follow(self.claim)

    def begin_write(self, plan: bytes | None = None) -> None:
        """Create the files of a new write or indexing; tasks of a write may create data files from now on.

        Args:
            plan: content of the requested file; by default that of a write.

        Raises:
            CommitConflict: see `create_pending`.
        """
        # Before the instant: one with files and without markers counts as completed before (see `check_pending`).
        self._storage.make_folder(marker_folder(self.instant.requested))
        create_pending(self._storage, self.instant, _request(self.instant) if plan is None else plan)
        create_pending(self._storage, self.instant.at(State.INFLIGHT))

    @staticmethod
    def prepare_run(storage: Storage, lock: TableLock, planned: Instant) -> None:
        """Accept a plan, before a run of it is claimed, and delete files that a failed run left, of any program.

        Raises:
            CommitConflict: the writer that scheduled the action cancelled the plan.
            Fenced: another writer took the lock.
        """
        accept_plan(storage, plan_record_path(DECISION_FOLDER, planned), planned)
        if planned_kind(planned.action).on_failure is OnFailure.PUT_BACK:
            revert_to_requested(storage, lock, planned)
        else:
            revoke_heartbeat(storage, lock, planned.requested, runs_again=True)

    def begin_run(self) -> None:
        """Create the files of a run; tasks may create files of a compaction from now on.

        Raises:
            Fenced: another writer took the lock.
        """
        if self._kind.on_failure is OnFailure.PUT_BACK:
            self._storage.make_folder(marker_folder(self.instant.requested))
        # An interrupted clean is inflight already; deleting its files again is harmless.
        with suppress(FileExistsError):
            self._storage.put_if_absent(self.instant.at(State.INFLIGHT).path, b"")
        self._lock.verify()

    def delete_files(self, paths: Iterable[str], run: Run | None = None) -> None:
        """Delete the files of a clean's plan, see `Transaction.delete_files`."""
        if run is None:
            delete_files(self._storage, self.claim, paths)
            return
        files = tuple(paths)
        for _ in run(Deletion(self._storage, self.claim), in_portions(files, _PORTION)):
            pass
        sweep_partitions(self._storage, files)

    def reconcile(self, paths: frozenset[str], *, sole: bool = False) -> None:
        """Fence running tasks, and delete all marked files but those at `paths`; raises `Fenced` as `Claim.seal`.

        Args:
            sole: whether no other file is marked.
        """
        self.claim.seal()
        if not sole:
            delete_uncommitted_files(self._storage, self.claim, self.instant, paths)
        self._reconciled = paths

    def check_files(self, paths: frozenset[str]) -> None:
        """Check just before the commit that the reconciled files exist: until then a lost file can be written again.

        An object store has confirmed each file; who takes this writer for dead, and deletes them, deletes the claim.

        Raises:
            CorruptFileError: one is missing.
            Fenced: the same, as a writer that took this one for dead has deleted it.
        """
        if self._reconciled != paths:
            raise RuntimeError("complete needs the outcome that was given to reconcile")
        if not self._storage.is_file_system:
            return
        missing = [path for path in sorted(paths) if not self._storage.exists(path)]
        if missing:
            self.claim.verify()
            raise CorruptFileError(f"{missing[0]} in {self._storage.uri} is gone since it was written: write it again")

    def publish(self, completed: Instant, data: bytes) -> None:
        """Publish the action; raises as `streaming_lsm.txn.decision.publish`.

        If another writer may have taken the lock meanwhile, call `confirm` afterwards.
        """
        self.is_published = True
        try:
            publish(self._storage, self._decision_path, self.instant, completed, data, confirm=False)
        except CommitUnknown:
            raise
        except Exception:
            self.is_published = False
            raise

    def confirm(self, completed: Instant) -> None:
        """Check that the action was pending when it was published; raises `CommitUnknown`."""
        confirm_published(self._storage, self.instant, completed)

    def clean_up(self, completed: Instant) -> None:
        """Delete markers and decision records; after a failure the next transaction does, and the commit is valid."""
        try:
            if not self._storage.is_file_system and not self._kind.has_runs:
                self._clean_up_objects(completed)
                return
            # A task that was fenced after the reconciliation may have died before it deleted its file.
            delete_uncommitted_files(self._storage, self.claim, completed, self._reconciled or frozenset())
            delete_markers(self._storage, completed.requested)
            delete_decisions(self._storage, completed.requested)
            self._heartbeat.stop()  # what is deleted is not renewed any more
            self.claim.delete()
            self._storage.delete(waiting_path(completed.requested))
        except Fenced:
            _LOG.debug("another writer cleans up after %s", completed.path)
        except Exception:
            _LOG.warning("%s is committed, but its markers remain for now", completed.path, exc_info=True)

    def _clean_up_objects(self, completed: Instant) -> None:
        """Delete them with a single request; the instant is never written again, so that nothing is compared.

        Markers of other task attempts remain until the next recovery, which deletes the files of late ones, too.
        """
        markers = [marker_of(completed.requested, path) for path in self._reconciled or ()]
        self._heartbeat.stop()
        self._storage.delete_files([*markers, self._decision_path, self.claim.path, waiting_path(completed.requested)])
        self.claim.is_deleted = True

    def give_up(self, table: LockedTable, wait: LockWait) -> None:
        """Roll back the write, or revert the planned action; after a failure the next transaction does.

        Args:
            wait: how long to wait for the lock.
        """
        instant, uri = self.instant, self._storage.uri
        try:
            self.claim.verify()
            if not self._lock.is_held:
                table.acquire_again(instant, wait)
            self._lock.verify()
            timeline = Timeline.load(self._storage, previous=table.timeline)
            pending = next((found for found in timeline.pending if found.requested == instant.requested), None)
            if pending is not None:
                self._undo(pending, table)
        except Fenced as error:
            _LOG.warning("%s is left to the writer that took over: %s", instant.path, error)
        except Exception:
            _LOG.warning("%s in %s could not be rolled back; the next write does it", instant.path, uri, exc_info=True)

    def _undo(self, pending: Instant, table: LockedTable) -> None:
        if self._kind.has_runs:
            if undo_run(self._storage, pending, self._decision_path):
                table.metadata.roll_back(pending)
                if self._kind.on_failure is OnFailure.PUT_BACK:
                    revert_to_requested(self._storage, self._lock, pending)
        elif undo(self._storage, pending, self._decision_path):
            table.metadata.roll_back(pending)
            if self._kind.on_failure is OnFailure.LEAVE:
                leave_timeline(self._storage, self._lock, pending)
            else:
                roll_back(self._storage, self._lock, pending, table.times)

    def delete_claim(self) -> None:
        """Delete the heartbeat: this process is alive, and with it the instant would count as being written."""
        self.claim.delete(runs_again=self._kind.has_runs)


def _request(write: Instant) -> bytes:
    """Return the content of a write's requested file; Hudi reads that of a replacecommit for a clustering plan."""
    return encode_record("HoodieRequestedReplaceMetadata", {}) if write.action == "replacecommit" else b""
