"""Connect to an object store.

A *container* is a bucket of S3 or Google Cloud Storage, or a container of Azure. Credentials, region and endpoint are
those of the environment (``AWS_*``, ``GOOGLE_*``, ``AZURE_*``), which the clients read. They are in no URI, and are
neither printed nor pickled.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from obstore.store import MemoryStore, from_url

from streaming_lsm.storage.objects.failures import opening_failure

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

MEMORY = "memory"
_RETRIES = 6
_CLIENT: ClientConfig = {"allow_http": True, "connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=60)}
"""Plain HTTP is used only with an endpoint that the user gives with ``http://``."""


@dataclass(frozen=True)
class Connection:
    """Clients of one container, shared by all threads of a process.

    Attributes:
        store: retries throttled and failed requests, with back-off.
        once: sends each request a single time.
        checked: keys of the probes by which this process has checked that conditional puts are honoured.
    """

    store: ObjectStore
    once: ObjectStore
    checked: set[str] = field(default_factory=set)


@lru_cache(maxsize=64)
def connect(scheme: str, container: str) -> Connection:
    """Connect to a container; nothing is sent yet.

    Args:
        scheme: ``s3``, ``gs``, ``az``, ``abfss`` or ``memory``.
        container: name of the container; that of Azure may be followed by ``@`` and the host of the account.

    Raises:
        ConfigError: the environment lacks a setting, or has one that is not valid.
    """
    if scheme == MEMORY:
        memory = MemoryStore()
        return Connection(memory, memory)
    url = f"{scheme}://{quote(container, safe='@')}"
    try:
        return Connection(_open(url, _RETRIES), _open(url, 0))
    except Exception as error:
        raise opening_failure(url, error) from None


def _open(url: str, retries: int) -> ObjectStore:
    retry: RetryConfig = {
        "max_retries": retries,
        "backoff": {"init_backoff": timedelta(milliseconds=100), "max_backoff": timedelta(seconds=5), "base": 2},
        "retry_timeout": timedelta(seconds=120),
    }
    return from_url(url, client_options=_CLIENT, retry_config=retry)
