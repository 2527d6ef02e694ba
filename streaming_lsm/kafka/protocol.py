"""Encode and decode the two requests by which brokers are checked, as Kafka's protocol guide defines them.

*ApiVersions* (key 18, version 0) is answered before authentication. *Metadata* (key 3) names brokers, topics and
leaders, and creates no topic; version 10 gives the ids of topics, too, version 4 is for older brokers. Numbers are
big-endian, a text has its length before it. *Flexible* versions, of which version 10 is one, have lengths as varints,
one larger than they are (0 for null), and tagged fields at the end of each structure, which are passed over.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

_API_VERSIONS, _METADATA, _METADATA_WITH_IDS = (18, 0), (3, 4), (3, 10)
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
        topic_id: id that the topic got when it was created; None if the broker gives none.
    """

    error: int
    leaders: Mapping[int, int]
    topic_id: UUID | None = None


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


def metadata_request(topics: Sequence[str] | None, *, with_ids: bool = False) -> bytes:
    """Encode a Metadata request for topics, or for all topics; with the ids of topics, if the broker can give them."""
    if with_ids:
        return _metadata_request_with_ids(topics)
    if topics is None:
        return _request(_METADATA, struct.pack(">i?", -1, False))
    names = b"".join(_text(name.encode()) for name in topics)
    return _request(_METADATA, struct.pack(">i", len(topics)) + names + struct.pack(">?", False))


def _metadata_request_with_ids(topics: Sequence[str] | None) -> bytes:
    no_tags, no_id = b"\0", bytes(16)
    listed = _varint(0)
    if topics is not None:
        names = (name.encode() for name in topics)
        listed = _varint(len(topics) + 1) + b"".join(no_id + _varint(len(name) + 1) + name + no_tags for name in names)
    return _request(_METADATA_WITH_IDS, no_tags + listed + struct.pack(">???", False, False, False) + no_tags)


def parse_versions(answer: bytes) -> bool:
    """Check the answer to `versions_request`, without its length; return whether the broker can give ids of topics.

    Raises:
        NotKafka: it is none.
    """
    reader = _Reader(answer)
    reader.expect_correlation()
    error = reader.number("h")
    if error == _UNSUPPORTED_VERSION:
        return False
    if error:
        raise NotKafka("its answer has an error code")
    key, version = _METADATA_WITH_IDS
    ranges = [(reader.number("h"), reader.number("h"), reader.number("h")) for _ in range(reader.count())]
    return any(one == key and low <= version <= high for one, low, high in ranges)


def parse_metadata(answer: bytes, *, with_ids: bool = False) -> ClusterMetadata:
    """Decode the answer to `metadata_request`, without its length.

    Raises:
        NotKafka: it is none.
    """
    reader = _Reader(answer, flexible=with_ids)
    reader.expect_correlation()
    reader.tags()
    reader.number("i")
    brokers = {}
    for _ in range(reader.count()):
        node, host, port, _ = reader.number("i"), reader.text(), reader.number("i"), reader.text()
        reader.tags()
        brokers[node] = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    reader.text()
    reader.number("i")
    return ClusterMetadata(brokers, dict(_topic(reader, with_ids) for _ in range(reader.count())))


def _topic(reader: _Reader, with_ids: bool) -> tuple[str, TopicMetadata]:
    error, name = reader.number("h"), reader.text()
    topic_id = reader.uuid() if with_ids else None
    reader.number("b")
    leaders = dict(_leader(reader, with_ids) for _ in range(reader.count()))
    if with_ids:
        reader.number("i")
    reader.tags()
    return name, TopicMetadata(error, leaders, topic_id)


def _leader(reader: _Reader, with_ids: bool) -> tuple[int, int]:
    reader.number("h")
    partition, leader = reader.number("i"), reader.number("i")
    if with_ids:
        reader.number("i")
    # Replicas, those in sync and, in later versions, those that are offline.
    for _ in range(3 if with_ids else 2):
        for _ in range(reader.count()):
            reader.number("i")
    reader.tags()
    return partition, leader


def _request(api: tuple[int, int], body: bytes) -> bytes:
    message = struct.pack(">hhi", *api, _CORRELATION) + _text(_CLIENT) + body
    return struct.pack(">i", len(message)) + message


def _text(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text


def _varint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])


class _Reader:
    """Reads numbers and texts one after another."""

    def __init__(self, answer: bytes, *, flexible: bool = False) -> None:
        self._answer, self._place, self._flexible = answer, 0, flexible

    def expect_correlation(self) -> None:
        if self.number("i") != _CORRELATION:
            raise NotKafka("its answer belongs to no request")

    def tags(self) -> None:
        """Pass over tagged fields, if the version has them."""
        for _ in range(self._varint() if self._flexible else 0):
            self._varint()
            self._bytes(self._varint())

    def uuid(self) -> UUID | None:
        """Read a UUID; None for zero."""
        found = UUID(bytes=self._bytes(16))
        return found if found.int else None

    def _bytes(self, size: int) -> bytes:
        part = self._answer[self._place : self._place + size]
        if len(part) < size:
            raise NotKafka("its answer is too short")
        self._place += size
        return part

    def _varint(self) -> int:
        value = 0
        for shift in range(0, 35, 7):
            byte = self.number("B")
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value
        raise NotKafka("its answer has a malformed length")

    def _size(self, kind: str) -> int:
        """Read a length; 0 for null."""
        return max(self._varint() - 1 if self._flexible else self.number(kind), 0)

    def number(self, kind: str) -> int:
        try:
            (value,) = struct.unpack_from(f">{kind}", self._answer, self._place)
        except struct.error:
            raise NotKafka("its answer is too short") from None
        self._place += struct.calcsize(f">{kind}")
        return int(value)

    def count(self) -> int:
        """Read the length of an array; 0 for a null array."""
        count = self._size("i")
        # An element has at least two bytes.
        if 2 * count > len(self._answer) - self._place:
            raise NotKafka("its answer is too short")
        return count

    def text(self) -> str:
        """Read a text; empty for null."""
        return self._bytes(self._size("h")).decode("utf-8", "replace")
