"""Write a batch again after a conflict with another write, or after a lock was lost."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from streaming_lsm.config import CONFLICT_RETRIES, Options
from streaming_lsm.errors import ClusteringConflict, LockLost, WriteConflict
from streaming_lsm.lock.runtime import Runtime

T = TypeVar("T")

_SHARED = 2
"""Attempts beside other writes; the next ones are made alone, so that a large batch is not overtaken for ever."""
_LONGEST_S = 0.5

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt at a batch.

    Attributes:
        number: from 0.
        met_clustering: whether the last one changed file groups of a clustering, whose end is waited for.
    """

    number: int = 0
    met_clustering: bool = False

    @property
    def alone(self) -> bool:
        """Whether other writes are to wait for it."""
        return self.number >= _SHARED or self.met_clustering


def write_with_retries(
    options: Options, runtime: Runtime, write: Callable[[Attempt], T], finish: Callable[[], None]
) -> T:
    """Write a batch, and write it again after each conflict or lost lock, as often as the options say.

    Args:
        write: writes the whole batch.
        finish: called before a batch that met a clustering is written again: runs those that nobody else runs.

    Raises:
        WriteConflict, LockLost: the last attempt failed, too.
    """
    retries, met_clustering = options[CONFLICT_RETRIES], False
    for number in range(retries):
        try:
            return write(Attempt(number, met_clustering))
        except (WriteConflict, LockLost) as conflict:
            met_clustering = isinstance(conflict, ClusteringConflict)
            _LOG.warning("writing the batch again, retry %d of %d: %s", number + 1, retries, conflict)
            runtime.sleep(_LONGEST_S * runtime.random() * (number + 1) / retries)
            if met_clustering:
                finish()
    return write(Attempt(retries, met_clustering))
