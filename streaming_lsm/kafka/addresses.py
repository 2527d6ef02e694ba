"""Look whether a broker answers, before Spark starts: its Kafka source takes three minutes to give up."""

from __future__ import annotations

import socket

from streaming_lsm.errors import ConfigError


def check_brokers(bootstrap_servers: str, timeout_seconds: float = 10) -> None:
    """Connect to one of the brokers.

    Args:
        bootstrap_servers: ``host:port`` separated by commas, as Kafka's clients read them.
        timeout_seconds: for each broker.

    Raises:
        ConfigError: an address is malformed, or no broker takes a connection; the reason of each is named.
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
    # A security protocol may stand before the host, and an address of IPv6 in brackets.
    host, _, port = address.rpartition("://")[2].rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ConfigError(f"kafka.bootstrap.servers: {address!r} is not host:port")
    return host.strip("[]"), int(port)
