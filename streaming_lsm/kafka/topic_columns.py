"""Find the columns of a topic's rows where ``lsm.kafka.schema`` does not declare them.

They are those of the table, or, if there is none yet, of the newest schema of the topic's *subject*: the name under
which the versions of a schema are registered. Later schemas are followed by the sink, as messages name them.
"""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from streaming_lsm import config
from streaming_lsm.decode.avro.schema_columns import new_columns
from streaming_lsm.decode.avro.written_types import written_type
from streaming_lsm.decode.envelope import Envelope
from streaming_lsm.errors import ConfigError, LsmError, TableNotFound
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.kafka.topic_options import PLACEHOLDER
from streaming_lsm.kafka.topic_tables import TopicTable
from streaming_lsm.schema_registry.sources import WriterSchema
from streaming_lsm.table import LsmTable

_SUBJECT = f"{PLACEHOLDER}-value"


def envelope_of(table: TopicTable) -> Envelope:
    """Build the envelope of a table's messages. Spark parses declared columns, so a session must be running for these.

    Raises:
        ConfigError: the columns cannot be had, or columns, key, partition or ordering contradict each other.
    """
    settings = table.settings
    return settings.envelope(_columns(table) if settings.follows_schemas else None)


def check_columns(tables: Iterable[TopicTable]) -> None:
    """Check before Spark starts that the columns of tables can be had, where schemas give them.

    Raises:
        ConfigError: see `envelope_of`.
    """
    for table in tables:
        if table.settings.follows_schemas and PLACEHOLDER not in table.topics:
            envelope_of(table)


def _columns(table: TopicTable) -> pa.Schema:
    try:
        return LsmTable(table.path, table.settings.options).schema
    except TableNotFound:
        return _new_columns(table.settings, table.topics[0])


def _new_columns(settings: JobSettings, topic: str) -> pa.Schema:
    try:
        schema, where = _newest(settings, topic)
        is_debezium = settings.format.is_debezium
        return new_columns(written_type(schema), where, settings.needed_columns, is_debezium=is_debezium)
    except LsmError as error:
        raise ConfigError(
            f"{config.KAFKA_SCHEMA.key} is not set, and the columns of topic {topic!r} cannot be had from its schema: "
            f"{error}"
        ) from None


def _newest(settings: JobSettings, topic: str) -> tuple[WriterSchema, str]:
    """Fetch the newest schema of a topic's subject, with its name for messages."""
    subject = (settings.options[config.SCHEMA_SUBJECT] or _SUBJECT).replace(PLACEHOLDER, topic)
    sources = settings.schemas()
    for source in sources:
        found = source.newest(subject)
        if found is not None:
            return found, f"the newest schema of subject {subject!r} ({found.source})"
    names = " or ".join(source.name for source in sources)
    raise ConfigError(
        f"subject {subject!r} is not known to {names}: register its schema (in a folder: as {subject}.avsc), name the "
        f"subject in {config.SCHEMA_SUBJECT.key}, or declare the columns in {config.KAFKA_SCHEMA.key}"
    )
