"""Schema registries whose ids no other one of this process has, as clients keep schemas by URL and id."""

from __future__ import annotations

import itertools

from streaming_lsm.kafka.demo.registry_server import RegistryServer

_first_ids = itertools.count(1001, 1000)  # a server that a test makes itself begins at 1


def new_registry() -> RegistryServer:
    """A server that was not started yet; its port may be that of another one that was stopped."""
    return RegistryServer(first_id=next(_first_ids))
