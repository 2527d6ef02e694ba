"""Load the options of the Kafka job: source, event format and schema, trigger.

*Client keys*: keys under ``kafka.`` that are no options of this package and go to the Kafka client. Options of single
topics are described in `topic_options`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import pyarrow as pa
from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from streaming_lsm import config
from streaming_lsm.config import OPTIONS, Option, Options, read_properties, resolve
from streaming_lsm.decode.envelope import Envelope, EventFormat, check_sources
from streaming_lsm.decode.values.unavailable import unavailable
from streaming_lsm.errors import ConfigError
from streaming_lsm.format.table.merge_mode import COMMIT_TIME_ORDERING, CUSTOM, FILL_UNAVAILABLE, UNAVAILABLE
from streaming_lsm.kafka.topic_options import PREFIX, TopicOptions, of_topic, topic_options
from streaming_lsm.schema_registry.registry import SchemaRegistry
from streaming_lsm.schema_registry.sources import SchemaFolder
from streaming_lsm.spark.versions import arrow_schema, parse_ddl

_CLIENT = "kafka."
READING = {"kafka.fetch.max.wait.ms": "10", "kafka.max.poll.records": "5000"}
"""Client keys for reading a known range of offsets, where the user gives no others.

Spark asks for the end of a topic partition after every poll. A fetch that is on its way then waits at that end for
messages to come, by default for 500 ms, and the next one waits behind it; 500 messages a poll make that frequent."""


@dataclass(frozen=True)
class JobSettings:
    """Holds the options of the Kafka job.

    Attributes:
        options: options of this package.
        client: client keys, passed on unchanged.
        topic_options: options of single topics.
    """

    options: Options
    client: Mapping[str, str]
    topic_options: TopicOptions = field(default_factory=dict)

    @classmethod
    def load(cls, properties: Path | None, arguments: Mapping[str, str]) -> JobSettings:
        """Load settings by precedence: properties file < environment < arguments.

        Raises:
            ConfigError: an unreadable or malformed file, an unknown key or a malformed value.
        """
        file = _Keys.of(read_properties(properties) if properties else {})
        given = _Keys.of(arguments)
        options = Options(file.ours, source=str(properties)).merged(resolve(given.ours))
        settings = cls(options, {**file.client, **given.client})
        of_topics = topic_options({**file.topics, **given.topics}, settings.topics, settings.pattern)
        return replace(settings, topic_options=of_topics)

    @property
    def topics(self) -> tuple[str, ...]:
        """Topics of ``subscribe``, each once; none if a pattern selects them."""
        names = map(str.strip, (self.options[config.KAFKA_TOPICS] or "").split(","))
        return tuple(dict.fromkeys(name for name in names if name))

    @property
    def pattern(self) -> str | None:
        """Pattern of the topics."""
        return self.options[config.KAFKA_PATTERN]

    def of_topic(self, topic: str) -> JobSettings:
        """Return the settings for the events of a topic.

        Raises:
            ConfigError: an option of the topic is malformed.
        """
        return JobSettings(of_topic(self.options, self.topic_options.get(topic, {}), topic), self.client)

    def need(self, option: Option[str | None]) -> str:
        """Return the value of an option that the job requires.

        Raises:
            ConfigError: the option is not set.
        """
        value = self.options[option]
        if not value:
            raise ConfigError(f"{option.key} is not set: put it in the properties file or give {option.key}=VALUE")
        return value

    def source(self) -> dict[str, str]:
        """Return the options of Spark's Kafka source."""
        chosen = {
            config.KAFKA_SERVERS.key: self.need(config.KAFKA_SERVERS),
            config.KAFKA_STARTING_OFFSETS.key: self.need(config.KAFKA_STARTING_OFFSETS),
        }
        if self.options[config.KAFKA_MAX_OFFSETS]:
            chosen[config.KAFKA_MAX_OFFSETS.key] = str(self.options[config.KAFKA_MAX_OFFSETS])
        if self.options[config.KAFKA_MIN_PARTITIONS]:
            chosen[config.KAFKA_MIN_PARTITIONS.key] = str(self.options[config.KAFKA_MIN_PARTITIONS])
        chosen[config.KAFKA_FAIL_ON_LOSS.key] = str(self.options[config.KAFKA_FAIL_ON_LOSS]).lower()
        return {**chosen, **self._subscription(), **READING, **self.client}

    def _subscription(self) -> dict[str, str]:
        if self.pattern is None:
            return {config.KAFKA_TOPICS.key: self.need(config.KAFKA_TOPICS)}
        if self.options[config.KAFKA_TOPICS] is not None:
            raise ConfigError(f"{config.KAFKA_TOPICS.key} and {config.KAFKA_PATTERN.key} are both set: leave one out")
        return {config.KAFKA_PATTERN.key: self.pattern}

    def schemas(self) -> tuple[SchemaFolder | SchemaRegistry, ...]:
        """Return the sources of schemas, in the order in which they are asked: folder, registry.

        Raises:
            ConfigError: a URL is malformed.
        """
        folder, url = self.options[config.SCHEMA_FOLDER], self.options[config.SCHEMA_REGISTRY_URL]
        found: list[SchemaFolder | SchemaRegistry] = [SchemaFolder(folder)] if folder else []
        if url:
            found.append(SchemaRegistry(url, self.options[config.SCHEMA_REGISTRY_USER]))
        return tuple(found)

    def check_schemas(self, timeout_seconds: float = 5.0) -> None:
        """Check that the schema registry answers within a time, and that the folder is there, if messages are Avro.

        Raises:
            ConfigError: they do not, the registry refuses the user, or there is no source of schemas.
        """
        kind = self.format
        if not kind.is_avro:
            return
        sources = self.schemas()
        check_sources(kind, sources)
        for source in sources:
            if isinstance(source, SchemaRegistry):
                source.check(timeout_seconds)
            else:
                source.check()

    @property
    def format(self) -> EventFormat:
        """Format of message values."""
        return EventFormat(self.need(config.KAFKA_FORMAT))

    @property
    def follows_schemas(self) -> bool:
        """Whether the columns follow the schemas of messages: they are Avro, and no columns are declared."""
        return not self.options[config.KAFKA_SCHEMA] and self.format.is_avro

    @property
    def needed_columns(self) -> tuple[str, ...]:
        """Columns that keys, partitions and the order are made of."""
        return (*self.options[config.RECORD_KEY_FIELDS], *self._partition, *self._ordering)

    @property
    def _partition(self) -> tuple[str, ...]:
        # The CUSTOM key generator takes partition fields as column:SIMPLE or column:TIMESTAMP.
        return tuple(name.partition(":")[0] for name in self.options[config.PARTITION_FIELDS])

    @property
    def _ordering(self) -> tuple[str, ...]:
        by_commit = self.options[config.MERGE_MODE] in (COMMIT_TIME_ORDERING, CUSTOM)
        return () if by_commit else self.options[config.ORDERING_FIELDS]

    def envelope(self, columns: pa.Schema | None = None) -> Envelope:
        """Build the envelope of the topic's messages.

        Args:
            columns: those of the table, if they follow the schemas of messages (`topic_columns`); None for the declared
                ones. Spark parses these, so a session must be running.

        Raises:
            ConfigError: columns, key, partition or ordering contradict each other.
        """
        return Envelope(
            self._declared() if columns is None else columns,
            self.options[config.RECORD_KEY_FIELDS],
            self._partition,
            self._ordering,
            self.format,
            self.schemas(),
            self.need(config.UNAVAILABLE),
            self._fills_unavailable(),
            follows_schemas=columns is not None,
        )

    def _declared(self) -> pa.Schema:
        """Return the columns that are declared."""
        ddl = self.options[config.KAFKA_SCHEMA]
        if not ddl:
            raise ConfigError(
                f"{config.KAFKA_SCHEMA.key} is not set: declare the columns, as in `id BIGINT, name STRING`. "
                f"Only with {config.KAFKA_FORMAT.key}=avro and debezium-avro the schemas of the messages give them"
            )
        try:
            columns = parse_ddl(ddl)
        except PySparkException as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"{config.KAFKA_SCHEMA.key}={ddl!r} is not Spark DDL: {reason}") from None
        if not isinstance(columns, StructType):
            raise ConfigError(f"{config.KAFKA_SCHEMA.key}={ddl!r} names no columns: write `name TYPE, name TYPE`")
        return _arrow_columns(columns)

    def _fills_unavailable(self) -> bool:
        """Tell whether the table fills values that Debezium has not sent.

        Raises:
            ConfigError: it would not recognise what the connector sends.
        """
        if self.options[config.PARTIAL_MODE] != FILL_UNAVAILABLE:
            return False
        sent, filled = self.need(config.UNAVAILABLE), self.options[config.PARTIAL_UNAVAILABLE] or UNAVAILABLE
        if unavailable(sent).text != filled:
            raise ConfigError(
                f"{config.UNAVAILABLE.key}={sent!r}, but the table fills {config.PARTIAL_UNAVAILABLE.key}={filled!r}: "
                "set both to what the connector sends"
            )
        return True


def _arrow_columns(columns: StructType) -> pa.Schema:
    """Convert Spark's columns to Arrow, with their comments as metadata."""
    try:
        found = arrow_schema(columns)
    except PySparkException as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"{config.KAFKA_SCHEMA.key}: a column's type is not read: {reason}") from None
    fields = []
    for one, column in zip(found, columns.fields, strict=True):
        comment = column.metadata.get("comment")
        fields.append(one.remove_metadata() if comment is None else one.with_metadata({"comment": comment}))
    return pa.schema(fields)


@dataclass(frozen=True)
class _Keys:
    """Holds keys and values: options of this package, options of single topics, client keys."""

    ours: Mapping[str, str]
    topics: Mapping[str, str]
    client: Mapping[str, str]

    @classmethod
    def of(cls, values: Mapping[str, str]) -> _Keys:
        client = {key: value for key, value in values.items() if key.startswith(_CLIENT) and key not in OPTIONS}
        topics = {key: value for key, value in values.items() if key.startswith(PREFIX)}
        return cls(
            {key: value for key, value in values.items() if not (key in client or key in topics)}, topics, client
        )
