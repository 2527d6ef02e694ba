"""Fork Spark's Python workers from a process that has imported what their tasks need.

Spark starts this module in place of ``pyspark.daemon`` where ``spark.python.daemon.module`` names it; `local_session`
does. Spark's own daemon imports little, so that each of its workers imports pyspark, numpy, pyarrow and this package
anew, and pyspark from a zip file, which holds no compiled modules.

A package of ``--py-files`` comes when a task starts, too late to replace what is imported (`batch_writer`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from zipfile import BadZipFile, ZipFile

_VERSION = "pyspark/version.py"


def installed_first(path: Sequence[str]) -> list[str]:
    """Move Spark's zip files behind the folders, if one of these has the same version of pyspark installed.

    Args:
        path: entries of ``sys.path``.
    """
    packed = {entry: _packed_version(entry) for entry in path if entry.endswith(".zip")}
    zips = [entry for entry, version in packed.items() if version or Path(entry).name.startswith("py4j-")]
    others = [entry for entry in path if entry not in zips]
    versions = [version for version in packed.values() if version]
    installed = [found for found in map(_installed_version, others) if found]
    return [*others, *zips] if versions and installed and versions[0] == installed[0] else list(path)


def _packed_version(path: str) -> bytes | None:
    try:
        with ZipFile(path) as packed:
            return packed.read(_VERSION)
    except (OSError, KeyError, BadZipFile):
        return None


def _installed_version(folder: str) -> bytes | None:
    try:
        return (Path(folder) / _VERSION).read_bytes()
    except OSError:
        return None


def ending_with_spark(worker: Callable[..., int]) -> Callable[..., int]:
    """Wrap the function of Spark's daemon that serves one connection: it ends quietly when Spark has closed that.

    Spark closes the connections of tasks that it cancels. The daemon would print the stack of a worker that is writing
    then, after the error for which the tasks were cancelled.
    """

    def serve(*arguments: object) -> int:
        try:
            return worker(*arguments)
        except (EOFError, ConnectionError):
            return 1

    return serve


def main() -> None:
    """Import what tasks need, and serve Spark until it closes the standard input."""
    # Workers are forked: numpy's library for linear algebra would start threads when it is imported.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.path[:] = installed_first(sys.path)
    from pyspark import daemon

    from streaming_lsm.spark.batch_writer import freeze_gc

    freeze_gc()
    daemon.worker = ending_with_spark(daemon.worker)
    daemon.manager()


if __name__ == "__main__":
    main()
