"""Send the demo's events to a topic."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kafka import KafkaProducer

from streaming_lsm.kafka.demo.order import Message


@dataclass(frozen=True, slots=True)
class SentEvents:
    """Counts the messages sent, and locates the bad events among them.

    Attributes:
        messages: number of messages.
        poison: topic partition, offset and kind of each message that is a bad event.
    """

    messages: int
    poison: tuple[tuple[int, int, str], ...]


def send(bootstrap_servers: str, topic: str, messages: Iterable[Message]) -> SentEvents:
    """Send messages in order, those of a key to one partition, and wait until the broker has acknowledged them.

    Raises:
        KafkaError: the broker did not acknowledge a message.
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
