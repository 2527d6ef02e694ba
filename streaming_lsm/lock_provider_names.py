"""Name the lock providers that the option ``hoodie.write.lock.provider`` takes, and refuse the others with advice."""

from __future__ import annotations

import re

IN_PROCESS = "InProcessLockProvider"
FILE_SYSTEM = "FileSystemBasedLockProvider"
STORAGE = "StorageBasedLockProvider"
LOCK_PROVIDERS = (IN_PROCESS, FILE_SYSTEM, STORAGE)
"""Classes of Hudi that have a counterpart in this package."""

_PACKAGE = "org.apache.hudi.client.transaction.lock"
_KNOWN = {name: short for short in LOCK_PROVIDERS for name in (short, f"{_PACKAGE}.{short}")}
_NOT_BUILT = {
    "ZookeeperBasedLockProvider": "ZooKeeper",
    "ZookeeperBasedImplicitBasePathLockProvider": "ZooKeeper",
    "HiveMetastoreBasedLockProvider": "the Hive metastore",
    "DynamoDBBasedLockProvider": "DynamoDB",
    "DynamoDBBasedImplicitPartitionKeyLockProvider": "DynamoDB",
    "NoopLockProvider": "nothing",
}
_OWN = re.compile(r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$")


def parse_lock_provider(value: object) -> str:
    """Return the simple name of a built-in provider, or ``module:Class``.

    Raises:
        ValueError: the name is neither; the message says what to write instead.
    """
    name = value.strip() if isinstance(value, str) else ""
    if name in _KNOWN:
        return _KNOWN[name]
    if _OWN.match(name):
        return name
    short = name.rpartition(".")[2]
    if short in _NOT_BUILT:
        raise ValueError(
            f"locks of {_NOT_BUILT[short]} are not built: set {FILE_SYSTEM} (file systems) or {STORAGE} (object "
            "stores) for all writers of the table, those of Hudi included, or an implementation of your own as "
            "module:Class"
        )
    raise ValueError(f"expected one of {', '.join(LOCK_PROVIDERS)}, or an implementation of your own as module:Class")
