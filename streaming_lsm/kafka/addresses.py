"""Check Kafka brokers and topics in seconds: Spark's Kafka source reports nothing for three minutes, and no address.

*Bootstrap server*: an address that a client is given. *Advertised address*: one of those that the brokers name
themselves, which clients use from then on. *Security*: ``kafka.security.protocol``, of which only PLAINTEXT is
checked beyond the first answer of a broker, as the client authenticates itself before it may ask more.
"""

from __future__ import annotations

import difflib
import queue
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar
from uuid import UUID

from streaming_lsm.errors import ConfigError
from streaming_lsm.kafka.protocol import (
    UNKNOWN_TOPIC,
    ClusterMetadata,
    NotKafka,
    metadata_request,
    parse_metadata,
    parse_versions,
    versions_request,
)

T = TypeVar("T")

SERVERS, SECURITY = "kafka.bootstrap.servers", "kafka.security.protocol"
TOPICS, PATTERN = "subscribe", "subscribePattern"
BOOTSTRAP_SECONDS, LEADER_SECONDS = 7.0, 5.0
"""Limits for an answer of any bootstrap server, and of all leaders."""
_PAUSE_SECONDS = 0.3
_MOST_BYTES = 64 << 20
_TLS_ALERT = 0x15


class UnknownTopics(ConfigError):
    """A topic is not on the brokers: create it, or correct its name."""


@dataclass(frozen=True)
class SourceLook:
    """Holds the answers of the brokers of a Kafka source.

    Attributes:
        ids: ids by topic, as `check_source` returns them; of fewer topics if there is trouble.
        trouble: the error of `check_source`; None if it has none.
    """

    ids: Mapping[str, UUID | None]
    trouble: ConfigError | None = None


def check_source(
    source: Mapping[str, str], *, bootstrap_seconds: float = BOOTSTRAP_SECONDS, leader_seconds: float = LEADER_SECONDS
) -> Mapping[str, UUID | None]:
    """Check that the brokers of a Kafka source answer, and have its topics.

    With PLAINTEXT the topics of ``subscribe`` and the advertised addresses of their leaders are checked, too.

    Args:
        source: options of Spark's Kafka source.
        bootstrap_seconds: limit for an answer of any bootstrap server.
        leader_seconds: limit for the leaders: for a new topic to have them, and for their answers; and for the answers
            of the other brokers, if the first one to answer does not have a topic.

    Returns:
        The topics of ``subscribe`` with their ids, which Kafka makes when it creates a topic; for ``subscribePattern``
        all topics. An id is None if the brokers give none, or were not asked for topics.

    Raises:
        ConfigError: no broker answers, or one that leads a partition does not; the message has each address and why.
            A partition has no leader.
        UnknownTopics: no broker that answers has a topic.
    """
    look = look_at_source(source, bootstrap_seconds=bootstrap_seconds, leader_seconds=leader_seconds)
    if look.trouble is not None:
        raise look.trouble
    return look.ids


def look_at_source(
    source: Mapping[str, str], *, bootstrap_seconds: float = BOOTSTRAP_SECONDS, leader_seconds: float = LEADER_SECONDS
) -> SourceLook:
    """Check a Kafka source as `check_source` does; the ids that are known are returned beside an error, too."""
    ids: dict[str, UUID | None] = {}
    try:
        _check(source, bootstrap_seconds, leader_seconds, ids.update)
    except ConfigError as error:
        return SourceLook(ids, error)
    return SourceLook(ids)


def _check(
    source: Mapping[str, str],
    bootstrap_seconds: float,
    leader_seconds: float,
    learn: Callable[[Mapping[str, UUID | None]], None],
) -> None:
    """Check a source; `learn` is called with ids of topics as soon as brokers have given them."""
    servers, security = source.get(SERVERS, ""), source.get(SECURITY, "PLAINTEXT")
    topics = [name for name in map(str.strip, source.get(TOPICS, "").split(",")) if name]
    if security.upper() != "PLAINTEXT" or not (topics or PATTERN in source):
        check_brokers(servers, bootstrap_seconds, security=security)
        learn(dict.fromkeys(topics))
        return
    if not topics:
        learn(_ids(_any_broker(servers, partial(_metadata, topics=None), bootstrap_seconds)))
        return
    deadline = time.monotonic() + bootstrap_seconds + leader_seconds
    cluster = _any_broker(servers, partial(_metadata, topics=topics), bootstrap_seconds)
    learn(_ids(cluster))
    if _missing(topics, cluster):
        known = _view_of_all(servers, topics, cluster, leader_seconds)
        cluster = ClusterMetadata(known.brokers, {name: known.topics[name] for name in topics if name in known.topics})
        learn(_ids(cluster))
        _expect_topics(servers, topics, known)
    while _leaderless(cluster) and time.monotonic() < deadline:
        time.sleep(_PAUSE_SECONDS)
        cluster = _any_broker(servers, partial(_metadata, topics=topics), bootstrap_seconds)
        learn(_ids(cluster))
    for partition in _leaderless(cluster):
        raise ConfigError(f"{TOPICS}: {partition} has no leader among the brokers at {servers}: wait until it has one")
    _check_leaders(servers, cluster, leader_seconds)


def _ids(cluster: ClusterMetadata) -> dict[str, UUID | None]:
    topics = cluster.topics.items()
    return {name: topic.topic_id for name, topic in topics if topic.error not in UNKNOWN_TOPIC}


def check_brokers(
    bootstrap_servers: str, timeout_seconds: float = BOOTSTRAP_SECONDS, *, security: str = "PLAINTEXT"
) -> None:
    """Ask all brokers at a time, until one answers as a broker does.

    Args:
        bootstrap_servers: ``host:port`` separated by commas, as Kafka's clients read them.
        timeout_seconds: limit for all.
        security: ``kafka.security.protocol``.

    Raises:
        ConfigError: an address is malformed, or no broker answers; the message has the reason of each.
    """
    _any_broker(bootstrap_servers, partial(_greeting, security=security.upper()), timeout_seconds)


def _given(servers: str) -> list[str]:
    return [address for address in map(str.strip, servers.split(",")) if address]


def _any_broker(servers: str, ask: Callable[[str, float], T], seconds: float) -> T:
    addresses = _given(servers)
    for address in addresses:
        _host_and_port(address)
    refused: dict[str, str] = dict.fromkeys(addresses, _silent(seconds))
    for address, answer in _answers(addresses, ask, seconds):
        if not isinstance(answer, _Refusal):
            return answer
        refused[address] = str(answer)
    reasons = "; ".join(f"{address}: {reason}" for address, reason in refused.items()) or "no address is given"
    raise ConfigError(f"{SERVERS}={servers!r}: no broker answers ({reasons})")


def _missing(topics: Sequence[str], cluster: ClusterMetadata) -> list[str]:
    return [name for name in topics if name not in cluster.topics or cluster.topics[name].error in UNKNOWN_TOPIC]


def _view_of_all(servers: str, topics: Sequence[str], first: ClusterMetadata, seconds: float) -> ClusterMetadata:
    """Ask all brokers for topics that the first one to answer does not have: its metadata may be old.

    Returns:
        What they know together, of more topics than those asked for, until all of these are known. A topic is as the
        first broker describes it that has the topic.
    """
    known = ClusterMetadata(first.brokers, {})
    addresses = dict.fromkeys([*_given(servers), *first.brokers.values()])
    for _, answer in _answers(addresses, partial(_metadata, topics=None), seconds):
        if not isinstance(answer, _Refusal):
            known = ClusterMetadata({**known.brokers, **answer.brokers}, {**answer.topics, **known.topics})
            if not _missing(topics, known):
                break
    return known


def _expect_topics(servers: str, topics: Sequence[str], known: ClusterMetadata) -> None:
    missing = _missing(topics, known)
    if not missing:
        return
    near = difflib.get_close_matches(missing[0], known.topics, n=1)
    advice = f"did you mean {near[0]!r}?" if near else "create it, or correct the name"
    raise UnknownTopics(f"{TOPICS}: topic {missing[0]!r} is not on the brokers at {servers}; {advice}")


def _leaderless(cluster: ClusterMetadata) -> list[str]:
    return [
        f"partition {partition} of topic {name!r}"
        for name, topic in cluster.topics.items()
        for partition, node in topic.leaders.items()
        if node not in cluster.brokers
    ]


def _check_leaders(servers: str, cluster: ClusterMetadata, seconds: float) -> None:
    leading = {node for topic in cluster.topics.values() for node in topic.leaders.values()}
    addresses = [cluster.brokers[node] for node in sorted(leading)]
    refused = dict.fromkeys(addresses, _silent(seconds))
    for address, answer in _answers(addresses, partial(_greeting, security="PLAINTEXT"), seconds):
        if not isinstance(answer, _Refusal):
            del refused[address]
            continue
        refused[address] = str(answer)
    if refused:
        reasons = "; ".join(f"{address}: {reason}" for address, reason in refused.items())
        raise ConfigError(
            f"{SERVERS}={servers!r} answers, but not the address that its brokers advertise ({reasons}): correct "
            "advertised.listeners of the brokers, or make that address reachable from here"
        )


class _Refusal(str):
    """The reason why an address is no broker."""

    __slots__ = ()


def _answers(
    addresses: Iterable[str], ask: Callable[[str, float], T], seconds: float
) -> Iterable[tuple[str, T | _Refusal]]:
    """Ask addresses at a time, and yield their answers as they come; those without one in time are left out."""
    deadline = time.monotonic() + seconds
    answers: queue.SimpleQueue[tuple[str, T | _Refusal]] = queue.SimpleQueue()
    asked = list(addresses)
    for address in asked:
        # The process may end before a thread that waits for a name server.
        threading.Thread(target=_ask, args=(address, ask, deadline, answers), daemon=True).start()
    for _ in asked:
        try:
            yield answers.get(timeout=max(deadline - time.monotonic(), 0.001))
        except queue.Empty:
            return


def _ask(
    address: str,
    ask: Callable[[str, float], T],
    deadline: float,
    answers: queue.SimpleQueue[tuple[str, T | _Refusal]],
) -> None:
    try:
        answers.put((address, ask(address, deadline)))
    except TimeoutError:
        return
    except socket.gaierror as error:
        answers.put((address, _Refusal(f"the host is not known: {error.strerror}")))
    except (OSError, NotKafka) as error:
        answers.put((address, _Refusal(getattr(error, "strerror", None) or error)))


def _silent(seconds: float) -> str:
    return f"no answer within {seconds:g} s"


def _metadata(address: str, deadline: float, *, topics: Sequence[str] | None) -> ClusterMetadata:
    with _connected(address, deadline) as connection:
        with_ids = parse_versions(_exchange(connection, versions_request(), deadline))
        request = metadata_request(topics, with_ids=with_ids)
        return parse_metadata(_exchange(connection, request, deadline), with_ids=with_ids)


def _greeting(address: str, deadline: float, *, security: str) -> None:
    with _connected(address, deadline) as connection:
        if security.endswith("SSL"):
            _check_tls(connection, _host_and_port(address)[0], security)
        else:
            parse_versions(_exchange(connection, versions_request(), deadline))


def _check_tls(connection: socket.socket, host: str, security: str) -> None:
    """Begin a TLS handshake: only the client has keys and authorities, so that any answer of TLS is good."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        context.wrap_socket(connection, server_hostname=host).close()
    except (ssl.SSLEOFError, ssl.SSLZeroReturnError, ConnectionError):
        raise NotKafka(f"it does not speak TLS, as {SECURITY}={security} says") from None
    except ssl.SSLError as error:
        if error.reason in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE"):
            raise NotKafka(f"it does not speak TLS, as {SECURITY}={security} says") from None


def _connected(address: str, deadline: float) -> socket.socket:
    return socket.create_connection(_host_and_port(address), max(deadline - time.monotonic(), 0.001))


def _exchange(connection: socket.socket, request: bytes, deadline: float) -> bytes:
    closed = f"it closes the connection: it is no broker, or expects TLS ({SECURITY}=SSL)"
    try:
        connection.sendall(request)
        size = _received(connection, 4, deadline)
        if size[:1] and size[0] == _TLS_ALERT:
            raise NotKafka(f"it speaks TLS: set {SECURITY}=SSL or SASL_SSL")
        length = int.from_bytes(size, "big", signed=True)
        if len(size) == 4 and not 4 <= length <= _MOST_BYTES:
            raise NotKafka("its answer is none of a Kafka broker")
        answer = _received(connection, length, deadline) if len(size) == 4 else b""
    except ConnectionError:
        raise NotKafka(closed) from None
    if not answer or len(answer) < length:
        raise NotKafka(closed)
    return answer


def _received(connection: socket.socket, count: int, deadline: float) -> bytes:
    """Receive `count` bytes, or fewer if the connection is closed."""
    parts, left = [], count
    while left:
        connection.settimeout(max(deadline - time.monotonic(), 0.001))
        part = connection.recv(min(left, 1 << 20))
        if not part:
            break
        parts.append(part)
        left -= len(part)
    return b"".join(parts)


def _host_and_port(address: str) -> tuple[str, int]:
    # Kafka also accepts PROTOCOL://host:port and IPv6 addresses in brackets.
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(f"{SERVERS}: {address!r} is not an address: write host:port")
    return host.strip("[]"), int(port)
