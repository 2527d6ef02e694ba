"""Read the options of single topics: ``lsm.kafka.topic.<topic>.<option>``.

*Option of a topic*: overrides the common option for the events of that topic. Options under ``lsm.`` are written
without that prefix: ``lsm.kafka.topic.orders.table.path`` is ``lsm.table.path`` of the topic ``orders``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence

from streaming_lsm import config
from streaming_lsm.config import OPTIONS, Options
from streaming_lsm.errors import ConfigError

PREFIX = "lsm.kafka.topic."
PLACEHOLDER = "{topic}"
"""Stands for the topic in the values of text options."""
_OURS = "lsm."
_OF_QUERY = {
    config.KAFKA_SERVERS.key,
    config.KAFKA_TOPICS.key,
    config.KAFKA_PATTERN.key,
    config.KAFKA_STARTING_OFFSETS.key,
    config.KAFKA_MAX_OFFSETS.key,
    config.KAFKA_FAIL_ON_LOSS.key,
    config.KAFKA_MIN_PARTITIONS.key,
    config.SHARE_TABLES.key,
    config.CHECKPOINT.key,
    config.TRIGGER.key,
}
"""Options of which a query has one value."""

TopicOptions = Mapping[str, Mapping[str, str]]
"""Keys and values of options by topic."""


def topic_options(values: Mapping[str, str], topics: Sequence[str], pattern: str | None) -> TopicOptions:
    """Assign options to topics.

    Args:
        values: values by key, `PREFIX` included.
        topics: the topics of ``subscribe``; none if the query has a pattern.
        pattern: the pattern of topics.

    Raises:
        ConfigError: a key names no option, an option of the query, or no topic that the query reads.
    """
    found: dict[str, dict[str, str]] = {}
    is_read = _matcher(pattern) if pattern else topics.__contains__
    for key, value in values.items():
        named = list(_readings(key.removeprefix(PREFIX)))
        if not named:
            raise ConfigError(f"{key!r} names no option: write {PREFIX}<topic>.<option>{_nearest(key)}")
        read = [(topic, option) for topic, option in named if is_read(topic)]
        if not read:
            asked = (config.KAFKA_PATTERN.key, pattern) if pattern else (config.KAFKA_TOPICS.key, ",".join(topics))
            raise ConfigError(f"{key!r}: topic {named[0][0]!r} is none of {'='.join(asked)}")
        # Topics and options have dots: the longest name of an option counts, unless the topic is not read.
        topic, option = read[0]
        if option in _OF_QUERY:
            raise ConfigError(f"{key!r}: {option} is an option of the query: it has one value for all topics")
        found.setdefault(topic, {})[option] = value
    return found


def of_topic(options: Options, own: Mapping[str, str], topic: str) -> Options:
    """Return the options for the events of a topic.

    Args:
        options: the common ones.
        own: those of the topic.
        topic: its name, which replaces `PLACEHOLDER` in texts.

    Raises:
        ConfigError: a malformed value.
    """
    merged = options.merged(Options(own, source=f"{PREFIX}{topic}"))
    named = {
        key: value.replace(PLACEHOLDER, topic) if isinstance(value, str) and key not in _OF_QUERY else value
        for key, value in merged.items()
    }
    return Options(named)


def _readings(rest: str) -> Iterator[tuple[str, str]]:
    """Yield topic and option of every way to read a key without its prefix, that with the shortest topic first."""
    for dot in (place.start() for place in re.finditer(r"\.", rest)):
        topic, name = rest[:dot], rest[dot + 1 :]
        for option in (name, _OURS + name):
            if topic and option in OPTIONS:
                yield topic, option


def _matcher(pattern: str) -> Callable[[str], bool]:
    try:
        compiled = re.compile(pattern)
    except re.error:
        # A pattern of Java that Python does not read.
        return lambda _: True
    return lambda topic: compiled.fullmatch(topic) is not None


def _nearest(key: str) -> str:
    names = [option.removeprefix(_OURS) for option in OPTIONS]
    parts = key.removeprefix(PREFIX).split(".")
    endings = [".".join(parts[place:]) for place in range(1, len(parts))]
    close = [found for ending in endings for found in difflib.get_close_matches(ending, names, n=1, cutoff=0.85)]
    return f"; did you mean {PREFIX}<topic>.{close[0]}?" if close else ""
