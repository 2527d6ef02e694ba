"""Find topics that were deleted and created again, by the ids that Kafka makes when it creates a topic (KIP-516).

The offsets of a checkpoint belong to one such topic. Those of a new one under the same name begin again at 0, and Spark
would pass over its first events. So the ids of the topics that a query reads are kept in the query's checkpoint, as
empty files ``lsm-topic-ids/<topic in hex>/<id>`` beside Spark's own folders, which Spark does not look at. The
folder of a topic is the hex of its UTF-8 bytes, as file systems hide some names (``.x.crc``) and some ignore case; that
of a long topic is cut into nested folders.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cache, partial
from typing import Any, Protocol
from uuid import UUID

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from streaming_lsm import config
from streaming_lsm.errors import ConfigError, StorageError, TopicRecreated
from streaming_lsm.kafka.addresses import SECURITY, SourceLook, look_at_source
from streaming_lsm.kafka.settings import JobSettings

_LOG = logging.getLogger(__name__)
_FOLDER = "lsm-topic-ids"
_NAME_LIMIT = 200
"""Longest name of a folder; file systems take 255, and a topic of 249 characters has 498 in hex."""
_AGAIN_SECONDS = 1.0
"""Time from a look that finds a changed id to the one that confirms it: a broker may have old metadata for a while."""
REMEDY = (
    "All batches before are in the table. To read the topic as it is now from its begin, start with a new "
    "checkpointLocation and, if lsm.writer.id is set, a new one of that"
)


class KeptIds(Protocol):
    """Keeps the ids of the topics that a query reads; an id that was added stays."""

    def load(self) -> dict[str, set[UUID]]:
        """Return the ids by topic.

        Raises:
            StorageError: they cannot be read.
        """
        ...

    def add(self, topic: str, topic_id: UUID) -> None:
        """Add an id, unless it is there.

        Raises:
            StorageError: it cannot be written.
        """
        ...


class CheckpointIds:
    """Keeps ids in a checkpoint, by the file system that Spark has for it."""

    def __init__(self, spark: SparkSession, checkpoint: str) -> None:
        """Open the file system of a checkpoint.

        Args:
            spark: the session.
            checkpoint: the query's ``checkpointLocation``, which need not exist yet.

        Raises:
            StorageError: its file system is not known, or not to be reached.
        """
        java: Any = spark.sparkContext._jvm
        self._checkpoint = checkpoint
        self._path = java.org.apache.hadoop.fs.Path
        with self._named():
            self._root = self._path(checkpoint, _FOLDER)
            self._files = self._root.getFileSystem(spark.sparkContext._jsc.hadoopConfiguration())

    def load(self) -> dict[str, set[UUID]]:
        """Read the ids by topic, from the names of the files; other files are passed over."""
        found: dict[str, set[UUID]] = {}
        with self._named():
            if not self._files.exists(self._root):
                return found
            files = self._files.listFiles(self._root, True)
            while files.hasNext():
                *folders, name = str(files.next().getPath()).rpartition(f"/{_FOLDER}/")[2].split("/")
                with suppress(ValueError):
                    topic, topic_id = bytes.fromhex("".join(folders)).decode(), UUID(name)
                    found.setdefault(topic, set()).add(topic_id)
        return found

    def add(self, topic: str, topic_id: UUID) -> None:
        """Create the file of an id, unless it is there."""
        name = topic.encode().hex()
        folders = [name[at : at + _NAME_LIMIT] for at in range(0, len(name), _NAME_LIMIT)]
        with self._named():
            self._files.createNewFile(self._path(self._root, "/".join([*folders, str(topic_id)])))

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the checkpoint in an error of its file system."""
        try:
            yield
        except (Py4JError, PySparkException) as error:
            raise StorageError(
                f"{config.CHECKPOINT.key}={self._checkpoint!r}: its folder {_FOLDER} cannot be read or written: "
                f"{_reason(error)}; let this process read and write there"
            ) from None


class TopicIds:
    """Compares the ids of a query's topics with those that its checkpoint has."""

    def __init__(
        self,
        ask: Callable[[], SourceLook],
        kept: KeptIds,
        *,
        selects: Callable[[str], bool] = lambda _: True,
        fail_on_loss: bool = True,
        security: str = "PLAINTEXT",
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """Load the ids that are kept.

        Args:
            ask: asks the brokers, as `look_at_source` does.
            kept: the ids of the query's earlier runs; none for a topic takes the present id.
            selects: whether the query reads a topic.
            fail_on_loss: whether a changed id is an error; else it is kept, too, and a warning.
            security: ``kafka.security.protocol``.
            sleep: waits for seconds.

        Raises:
            StorageError: the checkpoint cannot be read.
        """
        self._ask, self._kept, self._selects, self._fail_on_loss = ask, kept, selects, fail_on_loss
        self._security, self._sleep = security.upper(), sleep
        self._lock = threading.Lock()
        self._new: list[tuple[str, UUID]] = []
        self._asked = self._begun = self._said = False
        self._known = kept.load()

    @classmethod
    def of_query(cls, spark: SparkSession, settings: JobSettings) -> TopicIds:
        """Load the ids of the query of some settings.

        Raises:
            ConfigError: an option is missing.
            StorageError: the checkpoint cannot be read.
        """
        source = settings.source()
        return cls(
            partial(look_at_source, source),
            CheckpointIds(spark, settings.need(config.CHECKPOINT)),
            selects=cache(partial(_selects, spark.sparkContext._jvm, settings.pattern)),
            fail_on_loss=settings.options[config.KAFKA_FAIL_ON_LOSS],
            security=source.get(SECURITY, "PLAINTEXT"),
        )

    def check(self) -> None:
        """Check the source, and the ids of its topics; ids of topics that are new are kept from the first batch on.

        Raises:
            TopicRecreated: a topic was deleted and created again, whatever else is wrong with the source.
            ConfigError: see `check_source`. The ids of the other topics have been compared, and are kept.
            StorageError: the checkpoint cannot be written.
        """
        look = self._confirmed_look()
        with self._lock:
            for topic, topic_id in look.ids.items():
                self._compare(topic, topic_id)
            if look.trouble is None and self._security != "PLAINTEXT":
                self._say_unchecked("the ids of topics are not known")
            self._asked = look.trouble is None
            self._keep()
        if look.trouble is not None:
            raise look.trouble

    def before_batch(self) -> None:
        """Keep the ids of the topics before a batch is written, as no later run would find a change without them.

        Raises:
            LsmError: as of `check`, `ConfigError` excepted.
        """
        if self._begun:
            return
        self._begun = True
        if not self._asked:
            with suppress(ConfigError):
                self.check()
        with self._lock:
            self._keep()

    def _confirmed_look(self) -> SourceLook:
        """Ask the brokers; twice if an id has changed, and without those changes that only one answer has."""
        look = self._look()
        changed = self._changed(look.ids)
        if not changed:
            return look
        self._sleep(_AGAIN_SECONDS)
        look = self._look()
        unconfirmed = self._changed(look.ids) - changed
        return replace(look, ids={topic: one for topic, one in look.ids.items() if topic not in unconfirmed})

    def _look(self) -> SourceLook:
        look = self._ask()
        return replace(look, ids={topic: one for topic, one in look.ids.items() if self._selects(topic)})

    def _changed(self, ids: Mapping[str, UUID | None]) -> set[str]:
        with self._lock:
            return {topic for topic, one in ids.items() if one and one not in self._known.get(topic, {one})}

    def _compare(self, topic: str, topic_id: UUID | None) -> None:
        if topic_id is None:
            self._say_unchecked(f"the id of topic {topic!r} is not known")
            return
        known = self._known.get(topic, set())
        if topic_id in known:
            return
        if known:
            said = f"topic {topic!r} was deleted and created again since the query read it: its id is {topic_id} now"
            if self._fail_on_loss:
                raise TopicRecreated(
                    f"{said}, and was {' or '.join(sorted(map(str, known)))}. {REMEDY}; to go on at the offsets of the "
                    "checkpoint, without the events before them, set failOnDataLoss=false"
                )
            _LOG.warning(
                "%s. Its events before the offsets of the checkpoint are not read (failOnDataLoss=false)", said
            )
        self._known[topic] = {*known, topic_id}
        self._new.append((topic, topic_id))

    def _keep(self) -> None:
        while self._begun and self._new:
            self._kept.add(*self._new[0])
            del self._new[0]

    def _say_unchecked(self, unknown: str) -> None:
        if self._said:
            return
        self._said = True
        reason = "its brokers are older than Kafka 2.8, or give none"
        if self._security != "PLAINTEXT":
            reason = f"{SECURITY}={self._security} lets only Kafka's client ask for topics"
        _LOG.warning(
            "%s, as %s: if a topic is deleted and created again, its first events may be passed over in silence",
            unknown,
            reason,
        )


def _selects(java: Any, pattern: str | None, topic: str) -> bool:
    """Tell whether a query reads a topic, by Java's rules of patterns, as Spark does."""
    try:
        return pattern is None or bool(java.java.util.regex.Pattern.matches(pattern, topic))
    except (Py4JError, PySparkException) as error:
        raise ConfigError(
            f"{config.KAFKA_PATTERN.key}={pattern!r} cannot be compared with topics: {_reason(error)}"
        ) from None


def _reason(error: Exception) -> str:
    """Return the message of an error of Java, without its stack."""
    return str(error).partition("\n\tat ")[0]
