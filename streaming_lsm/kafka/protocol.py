"""Encode and decode the two requests by which brokers are checked, as Kafka's protocol guide defines them.

*ApiVersions* (key 18, version 0) is answered before authentication. *Metadata* (key 3, version 4) names brokers, topics
and leaders, and creates no topic. Numbers are big-endian, a text has its length before it.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

_API_VERSIONS, _METADATA = (18, 0), (3, 4)
_CORRELATION = 0x6C736D
_CLIENT = b"streaming_lsm"
_UNSUPPORTED_VERSION = 35
UNKNOWN_TOPIC = (3, 17)
"""Error codes of a topic that the brokers do not have, and of a name that no topic can have."""


class NotKafka(ValueError):
    """Reports an answer that is none of a Kafka broker."""


@dataclass(frozen=True)
class TopicMetadata:
    """Describes a topic.

    Attributes:
        error: Kafka's error code, 0 for none.
        leaders: node id of the leader by partition; -1 if a partition has none.
    """

    error: int
    leaders: Mapping[int, int]


@dataclass(frozen=True)
class ClusterMetadata:
    """Describes a cluster, as one broker knows it.

    Attributes:
        brokers: advertised address, ``host:port``, by node id.
        topics: topics by name.
    """

    brokers: Mapping[int, str]
    topics: Mapping[str, TopicMetadata]


def versions_request() -> bytes:
    """Encode an ApiVersions request."""
    return _request(_API_VERSIONS, b"")


def metadata_request(topics: Sequence[str] | None) -> bytes:
    """Encode a Metadata request for topics, or for all topics."""
    if topics is None:
        return _request(_METADATA, struct.pack(">i?", -1, False))
    names = b"".join(_text(name.encode()) for name in topics)
    return _request(_METADATA, struct.pack(">i", len(topics)) + names + struct.pack(">?", False))


def check_versions_answer(answer: bytes) -> None:
    """Check the answer to `versions_request`, without its length.

    Raises:
        NotKafka: it is none.
    """
    reader = _Reader(answer)
    reader.expect_correlation()
    if reader.number("h") not in (0, _UNSUPPORTED_VERSION):
        raise NotKafka("its answer has an error code")


def parse_metadata(answer: bytes) -> ClusterMetadata:
    """Decode the answer to `metadata_request`, without its length.

    Raises:
        NotKafka: it is none.
    """
    reader = _Reader(answer)
    reader.expect_correlation()
    reader.number("i")
    brokers = {}
    for _ in range(reader.count()):
        node, host, port, _ = reader.number("i"), reader.text(), reader.number("i"), reader.text()
        brokers[node] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    reader.text()
    reader.number("i")
    return ClusterMetadata(brokers, dict(_topic(reader) for _ in range(reader.count())))


def _topic(reader: _Reader) -> tuple[str, TopicMetadata]:
    error, name, _ = reader.number("h"), reader.text(), reader.number("b")
    leaders = {}
    for _ in range(reader.count()):
        reader.number("h")
        partition, leader = reader.number("i"), reader.number("i")
        for _ in range(2):
            for _ in range(reader.count()):
                reader.number("i")
        leaders[partition] = leader
    return name, TopicMetadata(error, leaders)


def _request(api: tuple[int, int], body: bytes) -> bytes:
    message = struct.pack(">hhi", *api, _CORRELATION) + _text(_CLIENT) + body
    return struct.pack(">i", len(message)) + message


def _text(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


class _Reader:
    """Reads numbers and texts one after another."""

    def __init__(self, answer: bytes) -> None:
        self._answer, self._place = answer, 0

    def expect_correlation(self) -> None:
        if self.number("i") != _CORRELATION:
            raise NotKafka("its answer belongs to no request")

    def number(self, kind: str) -> int:
        try:
            (value,) = struct.unpack_from(f">{kind}", self._answer, self._place)
        except struct.error:
            raise NotKafka("its answer is too short") from None
        self._place += struct.calcsize(f">{kind}")
        return int(value)

    def count(self) -> int:
        """Read the length of an array; 0 for a null array."""
        count = max(self.number("i"), 0)
        # An element has at least two bytes.
        if 2 * count > len(self._answer) - self._place:
            raise NotKafka("its answer is too short")
        return count

    def text(self) -> str:
        """Read a text; empty for null."""
        size = max(self.number("h"), 0)
        text = self._answer[self._place : self._place + size]
        if len(text) < size:
            raise NotKafka("its answer is too short")
        self._place += size
        return text.decode("utf-8", "replace")
