"""Check that a Kafka broker is reachable before Spark starts, as Spark's Kafka source gives up after three minutes."""

from __future__ import annotations

import socket

from streaming_lsm.errors import ConfigError


def check_brokers(bootstrap_servers: str, timeout_seconds: float = 10) -> None:
    """Connect to the brokers one after another until one accepts the connection.

    Args:
        bootstrap_servers: ``host:port`` separated by commas, as Kafka's clients read them.
        timeout_seconds: limit for each broker.

    Raises:
        ConfigError: an address is malformed, or no broker accepts a connection; the message has the reason of each.
    """
    refused = []
    for address in filter(None, map(str.strip, bootstrap_servers.split(","))):
        try:
            socket.create_connection(_host_and_port(address), timeout_seconds).close()
        except OSError as error:
            refused.append(f"{address}: {error.strerror or error}")
        else:
            return
    reasons = "; ".join(refused) or "no address is given"
    raise ConfigError(f"kafka.bootstrap.servers={bootstrap_servers!r}: no broker answers ({reasons})")


def _host_and_port(address: str) -> tuple[str, int]:
    # Kafka also accepts PROTOCOL://host:port and IPv6 addresses in brackets.
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(f"kafka.bootstrap.servers: {address!r} is not an address: write host:port")
    return host.strip("[]"), int(port)
