"""Write change streams to Apache Hudi tables with the LSM storage layout, and read Hudi tables, from Python.

`LsmTable` writes and reads tables without Spark. `LsmSink`, `LsmListener`, `read`, `write_frame` and `register` need
the ``spark`` extra. Names are imported on first access, so that the package can be imported without extras.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from streaming_lsm.errors import (
    ClusteringConflict,
    CommitConflict,
    CommitUnknown,
    ConfigError,
    CorruptFileError,
    EarlyConflict,
    Fenced,
    LockLost,
    LockTimeout,
    LsmError,
    MergerError,
    MissingPackage,
    ReadOvertaken,
    RecordError,
    RegistryError,
    SchemaError,
    StorageError,
    TableNotFound,
    TopicRecreated,
    UnsupportedTable,
    WriteConflict,
    WriterTimeout,
)
from streaming_lsm.extras import missing_package

if TYPE_CHECKING:
    from streaming_lsm.decode.decoder import Decoder
    from streaming_lsm.decode.envelope import Envelope, EventFormat
    from streaming_lsm.file_group.file_system_view import FileSlice
    from streaming_lsm.kafka.addresses import check_source
    from streaming_lsm.lock.providers.base import LockProvider
    from streaming_lsm.query.cdc.changes import Changes
    from streaming_lsm.query.prune.explanation import Explanation
    from streaming_lsm.query.scan import Scan
    from streaming_lsm.schema_registry.registry import SchemaRegistry
    from streaming_lsm.schema_registry.sources import SchemaFolder
    from streaming_lsm.spark.listener import LsmListener
    from streaming_lsm.spark.queries.reading import read, register
    from streaming_lsm.spark.sink import LsmSink, write_frame
    from streaming_lsm.table import LsmTable
    from streaming_lsm.timeline.instant import Instant
    from streaming_lsm.timeline.timeline import Timeline
    from streaming_lsm.write.numbers import BatchNumbers

__version__ = "0.1.0"
__all__ = [
    "LsmTable",
    "LsmSink",
    "LsmListener",
    "read",
    "write_frame",
    "register",
    "Envelope",
    "EventFormat",
    "SchemaRegistry",
    "SchemaFolder",
    "Decoder",
    "check_source",
    "Scan",
    "Explanation",
    "Changes",
    "Timeline",
    "Instant",
    "FileSlice",
    "BatchNumbers",
    "LockProvider",
    "LsmError",
    "ConfigError",
    "MergerError",
    "ReadOvertaken",
    "SchemaError",
    "RecordError",
    "RegistryError",
    "TopicRecreated",
    "CorruptFileError",
    "TableNotFound",
    "UnsupportedTable",
    "StorageError",
    "MissingPackage",
    "CommitConflict",
    "ClusteringConflict",
    "EarlyConflict",
    "LockTimeout",
    "WriteConflict",
    "WriterTimeout",
    "CommitUnknown",
    "Fenced",
    "LockLost",
]

_MODULES = {
    "LsmTable": "streaming_lsm.table",
    "LsmSink": "streaming_lsm.spark.sink",
    "LsmListener": "streaming_lsm.spark.listener",
    "read": "streaming_lsm.spark.queries.reading",
    "register": "streaming_lsm.spark.queries.reading",
    "write_frame": "streaming_lsm.spark.sink",
    "Envelope": "streaming_lsm.decode.envelope",
    "EventFormat": "streaming_lsm.decode.envelope",
    "Decoder": "streaming_lsm.decode.decoder",
    "SchemaRegistry": "streaming_lsm.schema_registry.registry",
    "SchemaFolder": "streaming_lsm.schema_registry.sources",
    "check_source": "streaming_lsm.kafka.addresses",
    "LockProvider": "streaming_lsm.lock.providers.base",
    "Changes": "streaming_lsm.query.cdc.changes",
    "Scan": "streaming_lsm.query.scan",
    "Explanation": "streaming_lsm.query.prune.explanation",
    "Timeline": "streaming_lsm.timeline.timeline",
    "Instant": "streaming_lsm.timeline.instant",
    "FileSlice": "streaming_lsm.file_group.file_system_view",
    "BatchNumbers": "streaming_lsm.write.numbers",
}


def __getattr__(name: str) -> object:
    module = _MODULES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return getattr(import_module(module), name)
    except ModuleNotFoundError as error:
        raise missing_package(name, error) from None


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
