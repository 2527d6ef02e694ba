"""Tell why a query does not get on, or why it failed, by a look at its Kafka source.

Spark waits for brokers without a word, and its errors name neither addresses nor topics.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from contextlib import suppress

from pyspark.errors import StreamingQueryException

from streaming_lsm.errors import ConfigError, LsmError, TopicRecreated
from streaming_lsm.kafka.addresses import UnknownTopics
from streaming_lsm.kafka.topic_ids import REMEDY

SILENT_SECONDS, PAUSE_SECONDS, ROUTINE_SECONDS = 4.0, 5.0, 10.0
"""Time without a batch before the first check; from one check to the next one without a batch, and with batches."""
_MISSED = 3
"""Number of checks in a row without a topic on any broker, after which it counts as deleted: a broker that starts
reports no topics at first."""
_MOVED = re.compile(r"Partition (\S+)-(\d+) offset was changed from (\d+) to (\d+)")
_DELETED = re.compile(r"Partitions Set\((\S+-\d+(?:, \S+-\d+)*)\) (?:have been deleted|are gone)")
_LOST = re.compile(r"Reason: (.*?)(?:\n| SQLSTATE|\Z)")


class TopicGone(LsmError):
    """A topic was deleted while the query read it: the query is to be stopped."""


class SourceWatch:
    """Checks the source of a query, in a thread: a check takes seconds.

    While batches complete, a check is for topics that were created again, and other trouble is left to Spark.
    """

    def __init__(
        self,
        check: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        silent_seconds: float = SILENT_SECONDS,
        pause_seconds: float = PAUSE_SECONDS,
        routine_seconds: float = ROUTINE_SECONDS,
    ) -> None:
        """Watch a source.

        Args:
            check: checks the source, as `TopicIds.check` does; raises `ConfigError`, or another `LsmError` if the query
                is to be stopped.
            clock: seconds.
            silent_seconds, pause_seconds, routine_seconds: see `SILENT_SECONDS`, `PAUSE_SECONDS`, `ROUTINE_SECONDS`.
        """
        self._check, self._clock = check, clock
        self._silent, self._pause, self._routine = silent_seconds, pause_seconds, routine_seconds
        self._next = clock() + silent_seconds
        self._due = clock() + routine_seconds
        self._missed = 0
        self._waits = True
        self._checking: threading.Thread | None = None
        self._found: LsmError | None = None

    def progressed(self) -> None:
        """Note that the query has completed a batch, or has nothing to do."""
        self._next, self._missed, self._waits = self._clock() + self._silent, 0, False

    def trouble(self) -> ConfigError | None:
        """Return what the last check found, once; starts the next check when it is due.

        Raises:
            TopicGone: a topic was deleted.
            TopicRecreated: a topic was deleted and created again.
            LsmError: the check failed for another reason than the source.
        """
        if self._checking is None:
            if self._clock() >= min(self._next, self._due):
                self._waits = self._clock() >= self._next
                self._checking = threading.Thread(target=self._run, name="lsm-source-check", daemon=True)
                self._checking.start()
            return None
        if self._checking.is_alive():
            return None
        found, self._found, self._checking = self._found, None, None
        self._due = self._clock() + self._routine
        if found is not None and not isinstance(found, ConfigError):
            raise found
        if not self._waits:
            return None
        self._next = self._clock() + self._pause
        self._missed = self._missed + 1 if isinstance(found, UnknownTopics) else 0
        if self._missed == _MISSED and found is not None:
            raise TopicGone(_with_remedy(str(found)))
        return found

    def _run(self) -> None:
        try:
            self._check()
        except LsmError as error:
            self._found = error

    def last_look(self) -> None:
        """Look once more for topics that were created again, at the end of a query; other trouble is passed over.

        Raises:
            TopicRecreated: a topic was deleted and created again.
        """
        with suppress(ConfigError):
            self._check()

    def explained(self, failure: StreamingQueryException) -> Exception:
        """Return the error to raise for a failure of Spark, with topic and remedy if the source is at fault."""
        lost = _data_loss(str(failure))
        if lost is not None:
            return lost
        try:
            self._check()
        except TopicRecreated as error:
            return error
        except ConfigError as error:
            return LsmError(_with_remedy(str(error)) if isinstance(error, UnknownTopics) else str(error))
        return failure


def _with_remedy(said: str) -> str:
    return f"{said}{'' if said.endswith('?') else '.'} {REMEDY}"


def _data_loss(said: str) -> LsmError | None:
    moved = _MOVED.search(said)
    if moved:
        topic, partition, before, now = moved.groups()
        return LsmError(
            f"topic {topic!r}, partition {partition}: the query has read up to offset {before}, and the topic ends at "
            f"{now}: it was deleted and created again. {REMEDY}"
        )
    deleted = _DELETED.search(said)
    if deleted:
        partitions = [one.rpartition("-") for one in deleted[1].split(", ")]
        named = ", ".join(f"partition {number} of topic {topic!r}" for topic, _, number in partitions)
        return LsmError(
            f"{named} {'is' if len(partitions) == 1 else 'are'} no more on the brokers. {REMEDY}; to go on with the "
            "other topics and partitions, set failOnDataLoss=false"
        )
    if "failOnDataLoss" not in said:
        return None
    lost = _LOST.search(said)
    reason = lost[1].strip() if lost else said.partition("\n")[0]
    return LsmError(
        f"events were deleted on the brokers before they were read: {reason} {REMEDY}; to go on with the events that "
        "are left, set failOnDataLoss=false"
    )
