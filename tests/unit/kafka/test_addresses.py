"""Brokers are looked for before Spark starts."""

from __future__ import annotations

import socket

import pytest

from streaming_lsm.errors import ConfigError
from streaming_lsm.kafka.addresses import check_brokers


def test_one_broker_that_answers_is_enough() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_brokers(f"127.0.0.1:1, PLAINTEXT://127.0.0.1:{port} ,")
        check_brokers(f"localhost:{port}")


def test_every_broker_that_does_not_answer_is_named_with_the_reason() -> None:
    with pytest.raises(ConfigError, match=r"no broker answers \(127\.0\.0\.1:1: Connection refused; \[::1\]:1: .*\)"):
        check_brokers("127.0.0.1:1,[::1]:1")


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("localhost", "'localhost' is not an address: write host:port"),
        ("localhost:", "'localhost:' is not an address: write host:port"),
        ("localhost:kafka", "'localhost:kafka' is not an address: write host:port"),
        ("localhost:99999", "'localhost:99999' is not an address: write host:port"),
        (":9092", "':9092' is not an address: write host:port"),
        (" , ", "no address is given"),
    ],
)
def test_a_malformed_address_is_named(address: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        check_brokers(address)
