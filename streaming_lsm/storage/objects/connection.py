"""Connect to an object store.

A *container* is a bucket of S3 or Google Cloud Storage, or a container of Azure. Credentials, region and endpoint are
those of the environment (``AWS_*``, ``GOOGLE_*``, ``AZURE_*``), which the clients read. They are in no URI, and are
neither printed nor pickled.
"""

from __future__ import annotations

import os
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING
from urllib.parse import quote

from obstore.store import MemoryStore, from_url

from streaming_lsm.errors import StorageError
from streaming_lsm.storage.objects.failures import opening_failure

if TYPE_CHECKING:
    from obstore.store import ClientConfig, ObjectStore, RetryConfig

MEMORY = "memory"
_RETRIES = 6
_CLIENT: ClientConfig = {"allow_http": True, "connect_timeout": timedelta(seconds=5), "timeout": timedelta(seconds=60)}
"""Plain HTTP is used only with an endpoint that the user gives with ``http://``."""


class Connection:
    """Clients of one container, shared by all threads of a process.

    A forked child must not use the clients of its parent: their threads are not there, and what the child does with the
    files that both have open ends the parent with a segmentation fault.

    Attributes:
        checked: keys of the probes by which this process has checked that conditional puts are honoured.
    """

    def __init__(self, store: ObjectStore, once: ObjectStore) -> None:
        """Use clients that this process has made; they are the same, but `once` sends each request a single time."""
        self._store, self._once = store, once
        self._process = os.getpid()
        self.checked: set[str] = set()

    @property
    def store(self) -> ObjectStore:
        """The client that repeats throttled and failed requests, with back-off.

        Raises:
            StorageError: this process is a child of the one that connected.
        """
        _refuse_child_of(self._process)
        return self._store

    @property
    def once(self) -> ObjectStore:
        """The client that sends each request a single time; raises as `store`."""
        _refuse_child_of(self._process)
        return self._once


def _refuse_child_of(process: int) -> None:
    if process != os.getpid():
        raise StorageError(
            f"process {process} used an object store, and this one ({os.getpid()}) was forked from it: start processes "
            "with the method 'spawn' or 'forkserver' (multiprocessing.set_start_method)"
        )


@cache
def _first_process() -> int:
    """Return the process that was the first to connect: its children cannot, though to other containers."""
    return os.getpid()


def connect(scheme: str, container: str) -> Connection:
    """Connect to a container; nothing is sent yet.

    Args:
        scheme: ``s3``, ``gs``, ``az``, ``abfss`` or ``memory``.
        container: name of the container; that of Azure may be followed by ``@`` and the host of the account.

    Raises:
        ConfigError: the environment lacks a setting, or has one that is not valid.
        StorageError: this process was forked from one that has connected.
    """
    _refuse_child_of(_first_process())
    return _connect(scheme, container)


@cache
def _connect(scheme: str, container: str) -> Connection:
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
