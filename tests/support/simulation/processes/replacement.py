"""Another program that replaces the file groups of a partition, as a clustering or an overwrite does."""

from __future__ import annotations

from streaming_lsm.errors import Fenced
from streaming_lsm.file_group.file_system_view import FileSystemView
from streaming_lsm.lock.lock import LOCK_FILE
from streaming_lsm.lock.owner import Owner
from streaming_lsm.timeline.timeline import Timeline
from streaming_lsm.txn.conflict import clustered_in_pending
from streaming_lsm.txn.locked_table import Beside
from tests.support.replaced_groups import put_replacement
from tests.support.simulation.processes.table import SimulatedTable
from tests.support.simulation.work.batches import REPLACED
from tests.support.simulation.world import World


def replace_groups(world: World, table: SimulatedTable) -> None:
    """Replace all file groups of a partition by none.

    It is completed in one step, since it is not this package's: what it does when it loses the lock is not tested.
    """
    with table.transaction(beside=Beside.ALL) as tx:
        begun, completed = tx.new_time(), tx.new_time()
        disk, timeline = world.disk, Timeline.load(world.disk)
        if Owner.decode(disk.read(LOCK_FILE)) != tx._lock.owner or timeline.last_time >= begun:
            raise Fenced("the lock was lost before the replacement")
        slices = FileSystemView(disk, timeline).slices()
        groups = tuple(found.file_id for found in slices if found.partition_path == REPLACED)
        # What a clustering is about to replace is a conflict to other programs, too.
        is_clustered = any(partition == REPLACED for partition, _ in clustered_in_pending(timeline))
        if not groups or is_clustered:
            return
        done = put_replacement(disk, begun, completed, {REPLACED: groups})
        world.tell(f"replaces {groups}: {done.path}")
        world.check(lambda: world.history.on_put(done.path, None))
