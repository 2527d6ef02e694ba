"""What the systems write: Parquet files and Kafka topics, and the rows that their tables must have in the end."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from kafka import KafkaProducer

from streaming_lsm import EventFormat
from streaming_lsm.kafka.broker import KafkaBroker, create_topic
from streaming_lsm.kafka.packaged import broker_jars
from streaming_lsm.spark.jvm.java import find_java
from tests.bench.documents import documents
from tests.bench.peers.changes import changes, document_rows
from tests.bench.peers.columns import CHANGE_COLUMNS, DOCUMENT_COLUMNS, ROW_COLUMNS
from tests.bench.peers.digest import digest
from tests.bench.peers.sizes import LOGS, PARTITIONS, Sizes
from tests.bench.peers.systems import CHANGES, KAFKA, QUERIES, READS, ROWS, TRICKLE
from tests.bench.workload import KEY, ORDERING, orders, padded

FILES = 2
"""Files of a batch: one for each core."""
_WRITTEN = "inputs.json"


def final_rows(batches: Iterable[pa.Table]) -> pa.Table:
    """Of each key the row with the highest ordering value."""
    rows = pa.concat_tables(batches)
    rows = rows.take(pc.sort_indices(rows, [(KEY, "ascending"), (ORDERING, "ascending")]))
    keys = rows.column(KEY).combine_chunks()
    last = np.append(pc.not_equal(keys.slice(0, len(keys) - 1), keys.slice(1)).to_numpy(zero_copy_only=False), True)
    return rows.filter(pa.array(last))


def write_files(folder: Path, sizes: Sizes) -> dict[str, str]:
    """Write the batches of S, E and R below `folder`, unless they are there; returns the digest of each final state."""
    kept = folder / _WRITTEN
    if kept.exists():
        found = json.loads(kept.read_text(encoding="utf-8"))
        if found["sizes"] == sizes.as_json() and QUERIES in found["digests"]:
            return dict(found["digests"])
    shutil.rmtree(folder, ignore_errors=True)
    digests = {}
    for workload, batches in (
        (ROWS, [orders(sizes.rows, sizes.keys, seed) for seed in range(sizes.batches)]),
        (TRICKLE, [orders(sizes.second_rows, sizes.keys, seed) for seed in range(sizes.seconds)]),
        (READS, [_base(sizes), *(orders(sizes.log, sizes.base, seed) for seed in range(1, max(LOGS) + 1))]),
    ):
        for number, rows in enumerate(batches):
            _write(folder / workload / f"{number:04d}", rows)
        digests[workload] = digest(final_rows(batches), ROW_COLUMNS)
    digests[QUERIES] = digests[READS]
    kept.write_text(json.dumps({"sizes": sizes.as_json(), "digests": digests}), encoding="utf-8")
    return digests


def _base(sizes: Sizes) -> pa.Table:
    """Rows with all keys, each once."""
    rows = orders(sizes.base, sizes.base, seed=0)
    keys = pc.binary_join_element_wise("order", padded(np.random.default_rng(0).permutation(sizes.base)), "")
    return rows.set_column(rows.schema.get_field_index(KEY), KEY, keys)


def _write(folder: Path, rows: pa.Table) -> None:
    folder.mkdir(parents=True)
    share = -(-rows.num_rows // FILES)
    for number in range(FILES):
        pq.write_table(rows.slice(number * share, share), folder / f"part-{number}.parquet")


@contextmanager
def topics(folder: Path, sizes: Sizes, say: Callable[[str], None]) -> Iterator[tuple[str, dict[str, str]]]:
    """Run a broker with the topics ``K`` and ``B``, and ``K-warm`` and ``B-warm`` for the warm-up.

    Args:
        folder: of the broker; deleted before.
        sizes: how many events.
        say: told each step in a line.

    Yields:
        The broker's address, and the digest of the final state of K and B.
    """
    shutil.rmtree(folder, ignore_errors=True)
    java = find_java()
    with KafkaBroker(folder, broker_jars(java), java) as broker:
        servers = broker.bootstrap_servers
        for name, batches in (("-warm", sizes.warm_up), ("", sizes.batches)):
            events = batches * sizes.rows
            say(f"sending {events} events to topic {KAFKA}{name}")
            rows = documents(events, sizes.keys, EventFormat.JSON)
            _send(servers, KAFKA + name, ((int(key[5:]), key, value) for key, value in rows))
            found = changes(batches * sizes.changes, sizes.changed_keys, seed=2)
            say(f"sending {batches * sizes.changes} events to topic {CHANGES}{name}")
            _send(servers, CHANGES + name, found.documents())
        # The last ones are those that are measured.
        expected = document_rows(orders(events, sizes.keys, seed=1))
        digests = {
            KAFKA: digest(final_rows([expected]), DOCUMENT_COLUMNS),
            CHANGES: digest(found.final(), CHANGE_COLUMNS),
        }
        yield servers, digests


def _send(servers: str, topic: str, messages: Iterable[tuple[int, bytes, bytes]]) -> None:
    """Send messages; those of a key go to one partition, in their order."""
    create_topic(servers, topic, PARTITIONS)
    producer = KafkaProducer(bootstrap_servers=servers, linger_ms=50, batch_size=1 << 18)
    for number, key, value in messages:
        producer.send(topic, key=key, value=value, partition=number % PARTITIONS)
    producer.flush()
    producer.close()
