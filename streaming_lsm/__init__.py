"""Change streams into sorted LSM tables in Apache Hudi's format, from Python.

`LsmTable` writes and reads tables without Spark. `LsmSink` and `register` need the ``spark`` extra and are
imported when they are first asked for, so that the library works without it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from streaming_lsm.table import LsmTable

if TYPE_CHECKING:
    from streaming_lsm.spark.datasource import register
    from streaming_lsm.spark.listener import LsmListener
    from streaming_lsm.spark.sink import LsmSink

__version__ = "0.1.0"
__all__ = ["LsmListener", "LsmSink", "LsmTable", "register"]


def __getattr__(name: str) -> object:
    if name == "LsmSink":
        from streaming_lsm.spark.sink import LsmSink

        return LsmSink
    if name == "LsmListener":
        from streaming_lsm.spark.listener import LsmListener

        return LsmListener
    if name == "register":
        from streaming_lsm.spark.datasource import register

        return register
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
