"""Requests and answers have the bytes of Kafka's protocol guide, as kafka-python makes and reads them."""

from __future__ import annotations

from uuid import UUID

import pytest
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from streaming_lsm.kafka.protocol import NotKafka, metadata_request, parse_metadata, parse_versions
from tests.support.crash_points import sample

_CORRELATION = 0x6C736D
ID = UUID("00112233-4455-6677-8899-aabbccddeeff")


@pytest.mark.parametrize("topics", [None, [], ["orders"], ["a", "t" * 126, "u" * 127, "v" * 249]])
def test_a_request_for_ids_has_the_bytes_of_another_client(topics: list[str] | None) -> None:
    named = None if topics is None else [MetadataRequest.MetadataRequestTopic(name=name) for name in topics]
    other = MetadataRequest(topics=named, allow_auto_topic_creation=False)
    other.with_header(correlation_id=_CORRELATION, client_id="streaming_lsm")
    assert metadata_request(topics, with_ids=True) == bytes(other.encode(version=10, header=True, framed=True))


def answer() -> bytes:
    topic, partition = MetadataResponse.MetadataResponseTopic, MetadataResponse.MetadataResponseTopic
    partitions = [
        partition.MetadataResponsePartition(
            partition_index=n,
            leader_id=n % 3,
            leader_epoch=n,
            replica_nodes=[0, 1, 2],
            isr_nodes=[1],
            offline_replicas=[],
        )
        for n in range(200)
    ]
    node = MetadataResponse.MetadataResponseBroker
    body = MetadataResponse(
        throttle_time_ms=5,
        brokers=[node(node_id=0, host="::1", port=9092), node(node_id=1, host="h" * 200, port=1, rack="r")],
        cluster_id=None,
        controller_id=-1,
        topics=[
            topic(error_code=0, name="orders", topic_id=ID, partitions=partitions),
            topic(error_code=3, name="gone", topic_id=UUID(int=0), partitions=[]),
        ],
    )
    return _CORRELATION.to_bytes(4, "big") + b"\0" + bytes(body.encode(version=10))


def test_an_answer_with_ids_is_read_as_another_client_makes_it() -> None:
    cluster = parse_metadata(answer(), with_ids=True)
    assert cluster.brokers == {0: "[::1]:9092", 1: "h" * 200 + ":1"}
    orders, gone = cluster.topics["orders"], cluster.topics["gone"]
    assert (orders.topic_id, orders.error, len(orders.leaders), orders.leaders[199]) == (ID, 0, 200, 1)
    assert (gone.topic_id, gone.error, gone.leaders) == (None, 3, {})


def test_tagged_fields_are_passed_over() -> None:
    whole = answer()
    tagged = whole[:4] + b"\x02" + b"\x00\x03abc" + b"\x81\x01\x00" + whole[5:]
    assert parse_metadata(tagged, with_ids=True) == parse_metadata(whole, with_ids=True)


def test_an_answer_that_is_cut_anywhere_is_none() -> None:
    # The fields behind the topics are not read: authorized operations of the cluster, tags.
    whole = answer()[:-5]
    for size in sample(range(len(whole)), 0):
        with pytest.raises(NotKafka):
            parse_metadata(whole[:size], with_ids=True)
    with pytest.raises(NotKafka):
        parse_metadata(whole[:5] + bytes(4) + b"\xff" * 40, with_ids=True)


@pytest.mark.parametrize(
    ("said", "gives"),
    [
        ("0000 00000002 0003 0000 000d 0012 0000 0004", True),
        ("0000 00000001 0003 0000 000a", True),
        ("0000 00000001 0003 0000 0009", False),
        ("0000 00000001 0003 000b 000d", False),
        ("0000 00000001 0001 0000 000f", False),
        ("0000 00000000", False),
        ("0023 00000001 0012 0000 0004", False),
    ],
)
def test_a_broker_gives_ids_if_it_has_metadata_of_version_10(said: str, gives: bool) -> None:
    assert parse_versions(_CORRELATION.to_bytes(4, "big") + bytes.fromhex(said)) is gives
