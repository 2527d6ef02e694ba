"""Sending the demo's events to a topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka import KafkaProducer

from streaming_lsm.kafka.orders import Message


@dataclass(frozen=True, slots=True)
class SentEvents:
    """What was sent.

    Attributes:
        messages: how many.
        poison: topic partition, offset and kind of each poison message.
    """

    messages: int
    poison: tuple[tuple[int, int, str], ...]


def send(bootstrap_servers: str, topic: str, messages: Iterable[Message]) -> SentEvents:
    """Send messages in order, each key's to one partition, and wait until the broker has them all.

    Raises:
        KafkaError: a message was not taken.
    """
    producer = KafkaProducer(bootstrap_servers=bootstrap_servers, compression_type="gzip", linger_ms=20)
    try:
        count, pending = 0, []
        for message in messages:
            sent = producer.send(topic, key=message.key, value=message.value)
            count += 1
            if message.poison is not None:
                pending.append((sent, message.poison))
        producer.flush(timeout=120)
        found = [(sent.get(timeout=30), why) for sent, why in pending]
        return SentEvents(count, tuple((place.partition, place.offset, why) for place, why in found))
    finally:
        producer.close(timeout=30)
