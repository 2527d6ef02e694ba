"""Choose the table of each topic of a query.

*Shared table*: a table that several topics are written to.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from streaming_lsm import config
from streaming_lsm.config import Options
from streaming_lsm.errors import ConfigError
from streaming_lsm.kafka.settings import JobSettings
from streaming_lsm.kafka.topic_options import PLACEHOLDER, PREFIX
from streaming_lsm.storage.uris import open_storage


@dataclass(frozen=True)
class TopicTable:
    """Describes a table and the topics that are written to it.

    Attributes:
        path: path of the table.
        topics: several for a shared table.
        settings: options for the events of these topics.
    """

    path: str
    topics: tuple[str, ...]
    settings: JobSettings

    @property
    def place(self) -> str:
        """URI of the table, the same for all ways to write its path."""
        return open_storage(self.path).uri

    @property
    def label(self) -> str:
        """The topics as messages name them."""
        return f"topic{'s' if len(self.topics) > 1 else ''} {', '.join(self.topics)}"


def check_tables(settings: JobSettings) -> list[TopicTable]:
    """Check before Spark starts that topics have tables of their own, or share one by intention.

    Returns:
        The tables that are known: with a pattern those of topics with options of their own, and one for all others,
        with `PLACEHOLDER` for the topic.

    Raises:
        ConfigError: they do not; or a table, or its folder of dead letters, is missing or used twice.
    """
    if settings.pattern is None:
        return topic_tables(settings, settings.topics)
    if not settings.options[config.TABLE_PATH]:
        return topic_tables(settings, settings.topic_options)
    _check_pattern(settings)
    return topic_tables(settings, (*settings.topic_options, PLACEHOLDER))


def _check_pattern(settings: JobSettings) -> None:
    """Check that the topics of a pattern, which may come later, have different tables and folders of dead letters."""
    options = settings.options
    path, asked = str(options[config.TABLE_PATH]), f"{config.KAFKA_PATTERN.key}={settings.pattern}"
    if PLACEHOLDER not in path:
        if options[config.SHARE_TABLES]:
            return
        raise ConfigError(
            f"{asked} may select several topics, and {config.TABLE_PATH.key}={path!r} is the table of each, where rows "
            f"of one would replace rows of another: give each a table ({_of_all()}), name one topic with "
            f"{config.KAFKA_TOPICS.key}, or set {config.SHARE_TABLES.key}=true if the rows of all are of one kind"
        )
    letters = _letters_of(options)
    if letters is not None and PLACEHOLDER not in letters:
        raise ConfigError(
            f"{asked} may select several topics, with tables of their own, and {config.DEAD_LETTER_PATH.key}="
            f"{letters!r} is the folder of each: give each a folder, as with {letters.rstrip('/')}/{PLACEHOLDER}"
        )


def topic_tables(settings: JobSettings, topics: Iterable[str]) -> list[TopicTable]:
    """Return the tables of some topics, in the order of their first topics.

    Raises:
        ConfigError: see `check_tables`.
    """
    found: dict[str, TopicTable] = {}
    letters: dict[str, TopicTable] = {}
    for topic in topics:
        own = settings.of_topic(topic)
        path = own.options[config.TABLE_PATH]
        if not path:
            raise ConfigError(f"topic {topic!r} has no table: set {PREFIX}{topic}.table.path, or {_of_all()}")
        table = TopicTable(path, (topic,), own)
        there = found.get(table.place)
        found[table.place] = table if there is None else _joined(there, table, settings)
        _check_letters(letters, found[table.place])
    return list(found.values())


def _joined(first: TopicTable, second: TopicTable, settings: JobSettings) -> TopicTable:
    if not settings.options[config.SHARE_TABLES]:
        raise ConfigError(
            f"topics {first.topics[0]!r} and {second.topics[0]!r} have one table, {second.path!r}, where rows of one "
            f"would replace rows of the other: give each a table ({_of_all()}, or {PREFIX}<topic>.table.path); or set "
            f"{config.SHARE_TABLES.key}=true if the rows of all are of one kind"
        )
    ours, others = dict(first.settings.options), dict(second.settings.options)
    different = [key for key in sorted({*ours, *others}) if ours.get(key) != others.get(key)]
    different = [key for key in different if key not in (config.TABLE_PATH.key, config.SCHEMA_SUBJECT.key)]
    if different:
        raise ConfigError(
            f"topics {first.topics[0]!r} and {second.topics[0]!r} share the table {second.path!r}, and {different[0]} "
            "is not the same for both: topics of one table have the same options"
        )
    return TopicTable(first.path, (*first.topics, *second.topics), first.settings)


def _check_letters(letters: dict[str, TopicTable], table: TopicTable) -> None:
    path = _letters_of(table.settings.options)
    if path is None:
        return
    other = letters.setdefault(open_storage(path).uri, table)
    if other.place != table.place:
        raise ConfigError(
            f"topics {other.topics[0]!r} and {table.topics[0]!r} have different tables and one "
            f"{config.DEAD_LETTER_PATH.key}, {path!r}: give each a folder, as with {path.rstrip('/')}/{PLACEHOLDER}"
        )


def _letters_of(options: Options) -> str | None:
    return options[config.DEAD_LETTER_PATH] if options[config.ON_BAD_EVENT] == "dead_letter" else None


def _of_all() -> str:
    return f"{config.TABLE_PATH.key} with {PLACEHOLDER}, as in /lake/{PLACEHOLDER}"
