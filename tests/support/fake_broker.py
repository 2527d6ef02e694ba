"""Sockets that answer as brokers do, or as something else does, to tell apart what can be wrong with an address."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from uuid import UUID

from kafka.protocol.metadata import MetadataRequest, MetadataResponse

Answer = Callable[[socket.socket], None]


@contextmanager
def listener(answer: Answer) -> Iterator[str]:
    """Listen on a free port, and call `answer` with each connection in a thread; yields the address."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=_accept, args=(server, answer), daemon=True).start()
        yield f"127.0.0.1:{server.getsockname()[1]}"


def _accept(server: socket.socket, answer: Answer) -> None:
    with suppress(OSError):
        while True:
            connection, _ = server.accept()
            threading.Thread(target=_serve, args=(connection, answer), daemon=True).start()


def _serve(connection: socket.socket, answer: Answer) -> None:
    with suppress(OSError), connection:
        answer(connection)


def silent(connection: socket.socket) -> None:
    """Accept and read, and never answer."""
    while connection.recv(1 << 16):
        pass


def closing(connection: socket.socket) -> None:
    """Close the connection after the first bytes, as a broker does that expects TLS."""
    connection.recv(1 << 16)


def saying(text: bytes) -> Answer:
    """Answer the first bytes with `text`, whatever they are."""

    def answer(connection: socket.socket) -> None:
        connection.recv(1 << 16)
        connection.sendall(text)

    return answer


def broker(
    brokers: Mapping[int, str], topics: Mapping[str, Mapping[int, int]], ids: Mapping[str, UUID] | None = None
) -> Answer:
    """Answer as a broker that knows `brokers` (addresses by node) and the leaders of `topics`.

    With `ids` it answers Metadata up to version 13, with the ids of topics, else up to version 9.
    """

    def answer(connection: socket.socket) -> None:
        while size := connection.recv(4, socket.MSG_WAITALL):
            length = int.from_bytes(size, "big")
            if length > 1 << 20:  # as a broker takes no request of hundreds of megabytes, which TLS looks like
                return
            request = connection.recv(length, socket.MSG_WAITALL)
            key, version, correlation = struct.unpack_from(">hhi", request)
            if key == 18:
                body = struct.pack(">hihhhhhh", 0, 2, 3, 0, 9 if ids is None else 13, 18, 0, 4)
            elif version == 10 and ids is not None:
                body = b"\0" + _metadata_with_ids(brokers, topics, ids, request)
            else:
                assert version == 4
                body = _metadata(brokers, topics, request)
            message = struct.pack(">i", correlation) + body
            connection.sendall(struct.pack(">i", len(message)) + message)

    return answer


def _metadata(brokers: Mapping[int, str], topics: Mapping[str, Mapping[int, int]], request: bytes) -> bytes:
    place = 8 + 2 + struct.unpack_from(">h", request, 8)[0]
    (count,) = struct.unpack_from(">i", request, place)
    place += 4
    asked = []
    for _ in range(count):
        (size,) = struct.unpack_from(">h", request, place)
        asked.append(request[place + 2 : place + 2 + size].decode())
        place += 2 + size
    parts = [struct.pack(">ii", 0, len(brokers))]
    for node, address in brokers.items():
        host, _, port = address.rpartition(":")
        parts.append(struct.pack(">i", node) + _text(host) + struct.pack(">ih", int(port), -1))
    names = list(topics) if count < 0 else asked
    parts.append(_text("cluster") + struct.pack(">ii", 1, len(names)))
    for name in names:
        leaders = topics.get(name, {})
        error = 0 if name in topics else 3
        parts.append(struct.pack(">h", error) + _text(name) + struct.pack(">?i", False, len(leaders)))
        for partition, leader in leaders.items():
            parts.append(struct.pack(">hii", 0, partition, leader) + struct.pack(">iiii", 1, leader, 1, leader))
    return b"".join(parts)


def _metadata_with_ids(
    brokers: Mapping[int, str], topics: Mapping[str, Mapping[int, int]], ids: Mapping[str, UUID], request: bytes
) -> bytes:
    """Answer in version 10, as another client encodes it."""
    asked = MetadataRequest.decode(request, version=10, header=True).topics
    Topic, Broker = MetadataResponse.MetadataResponseTopic, MetadataResponse.MetadataResponseBroker
    names = list(topics) if asked is None else [topic.name for topic in asked]
    addresses = {node: address.rpartition(":") for node, address in brokers.items()}
    answer = MetadataResponse(
        throttle_time_ms=0,
        brokers=[Broker(node_id=node, host=host, port=int(port)) for node, (host, _, port) in addresses.items()],
        cluster_id="cluster",
        controller_id=1,
        topics=[
            Topic(
                error_code=0 if name in topics else 3,
                name=name,
                topic_id=ids.get(name, UUID(int=0)),
                partitions=[
                    Topic.MetadataResponsePartition(
                        partition_index=partition,
                        leader_id=leader,
                        leader_epoch=7,
                        replica_nodes=[leader, 9],
                        isr_nodes=[leader],
                        offline_replicas=[9],
                    )
                    for partition, leader in topics.get(name, {}).items()
                ],
            )
            for name in names
        ],
    )
    return bytes(answer.encode(version=10))


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
