"""Send generated change events of an orders table to a Kafka topic.

    python jobs/produce_events.py --bootstrap-servers host:9092 --topic orders --events 20000

The same seed generates the same events. --model FILE writes the rows that a table must hold after them, as JSON lines.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from streaming_lsm.scripts import INTERRUPTED, fail, importing

with importing("produce_events"):
    from kafka.errors import KafkaError

    from streaming_lsm.decode.envelope import EventFormat
    from streaming_lsm.errors import LsmError
    from streaming_lsm.kafka.addresses import check_brokers
    from streaming_lsm.kafka.demo.avro_orders import AvroOrders
    from streaming_lsm.kafka.demo.orders import OrderEvents
    from streaming_lsm.kafka.demo.producing import send
    from streaming_lsm.schema_registry.registry import SchemaRegistry

_NAME = "produce_events"


def main(arguments: list[str] | None = None) -> int:
    """Run the job; returns its exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bootstrap-servers", required=True, metavar="HOST:PORT,…")
    parser.add_argument("--topic", default="orders", help="an existing topic (default orders)")
    parser.add_argument("--events", type=int, default=20_000, help="number of events to send (default 20000)")
    parser.add_argument("--seed", type=int, default=7, help="of the generated events (default 7)")
    parser.add_argument("--format", type=EventFormat, choices=list(EventFormat), default=EventFormat.JSON)
    parser.add_argument("--schema-registry", metavar="URL", help="gets the schemas of the formats in Avro")
    parser.add_argument("--model", type=Path, help="write the rows that the table must hold to this file")
    given = parser.parse_args(arguments)
    try:
        _produce(given)
    except KeyboardInterrupt:
        return fail(_NAME, "interrupted", INTERRUPTED)
    except (LsmError, KafkaError, OSError) as error:
        return fail(_NAME, error, 2)
    return 0


def _produce(given: argparse.Namespace) -> None:
    check_brokers(given.bootstrap_servers)
    encoding = None
    if given.format.is_avro and given.schema_registry:
        encoding = AvroOrders(SchemaRegistry(given.schema_registry), given.topic)
    source = OrderEvents(given.seed, given.format, encoding)
    sent = send(given.bootstrap_servers, given.topic, source.take(given.events))
    print(f"{sent.messages:,} events sent to {given.topic}, {len(sent.poison)} of them poison")
    if given.model:
        rows = [json.dumps(row.as_json(), ensure_ascii=False) for row in source.model.rows().values()]
        given.model.write_text("".join(f"{row}\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
