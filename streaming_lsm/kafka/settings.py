"""The Kafka job's options: where events come from, how they become rows, when batches run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql.types import StructType

from streaming_lsm import config
from streaming_lsm.config import OPTIONS, Option, Options, read_properties, resolve
from streaming_lsm.errors import ConfigError
from streaming_lsm.kafka.envelopes import Envelope, EventFormat

_CLIENT = "kafka."


@dataclass(frozen=True)
class JobSettings:
    """Everything that the Kafka job was asked for.

    Attributes:
        options: the options of this package.
        client: further keys under ``kafka.``, passed to the Kafka client as they are.
    """

    options: Options
    client: Mapping[str, str]

    @classmethod
    def load(cls, properties: Path | None, arguments: Mapping[str, str]) -> JobSettings:
        """Settings by precedence: properties file < environment < arguments.

        Raises:
            ConfigError: an unreadable or malformed file, an unknown key or a malformed value.
        """
        ours, client = _split(read_properties(properties) if properties else {})
        our_arguments, client_arguments = _split(arguments)
        options = Options(ours, source=str(properties)).merged(resolve(our_arguments))
        return cls(options, {**client, **client_arguments})

    def need(self, option: Option[str | None]) -> str:
        """The value of an option that the job cannot do without.

        Raises:
            ConfigError: it was not set.
        """
        value = self.options[option]
        if not value:
            raise ConfigError(f"{option.key} is not set: put it in the properties file or give {option.key}=VALUE")
        return value

    def source(self) -> dict[str, str]:
        """Options of Spark's Kafka source."""
        chosen = {
            config.KAFKA_SERVERS.key: self.need(config.KAFKA_SERVERS),
            config.KAFKA_TOPICS.key: self.need(config.KAFKA_TOPICS),
            config.KAFKA_STARTING_OFFSETS.key: self.need(config.KAFKA_STARTING_OFFSETS),
        }
        if self.options[config.KAFKA_MAX_OFFSETS]:
            chosen[config.KAFKA_MAX_OFFSETS.key] = str(self.options[config.KAFKA_MAX_OFFSETS])
        if self.options[config.KAFKA_MIN_PARTITIONS]:
            chosen[config.KAFKA_MIN_PARTITIONS.key] = str(self.options[config.KAFKA_MIN_PARTITIONS])
        chosen[config.KAFKA_FAIL_ON_LOSS.key] = str(self.options[config.KAFKA_FAIL_ON_LOSS]).lower()
        return {**chosen, **self.client}

    def envelope(self) -> Envelope:
        """How events become rows. Needs a running Spark session, which parses the columns.

        Raises:
            ConfigError: columns, key, partition or ordering do not fit together.
        """
        ddl = self.need(config.KAFKA_SCHEMA)
        try:
            columns = StructType.fromDDL(ddl)
        except PySparkException as error:
            reason = str(error).splitlines()[0]
            raise ConfigError(f"{config.KAFKA_SCHEMA.key}={ddl!r} is not Spark DDL: {reason}") from None
        if not isinstance(columns, StructType):
            raise ConfigError(f"{config.KAFKA_SCHEMA.key}={ddl!r} names no columns: write `name TYPE, name TYPE`")
        commit_time = self.options[config.MERGE_MODE] == "COMMIT_TIME_ORDERING"
        return Envelope(
            columns,
            self.options[config.RECORD_KEY_FIELDS],
            # With the CUSTOM key generator a partition field is written column:SIMPLE or column:TIMESTAMP.
            tuple(name.partition(":")[0] for name in self.options[config.PARTITION_FIELDS]),
            () if commit_time else self.options[config.ORDERING_FIELDS],
            EventFormat(self.need(config.KAFKA_FORMAT)),
        )


def _split(values: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Options of this package, and keys for the Kafka client."""
    client = {key: value for key, value in values.items() if key.startswith(_CLIENT) and key not in OPTIONS}
    return {key: value for key, value in values.items() if key not in client}, client
