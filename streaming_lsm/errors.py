"""Define the errors of this package, one class for each reaction of the caller.

A docstring names the condition, then the reaction. All errors derive from `LsmError`.
"""


class LsmError(Exception):
    """Root of all errors raised by this package."""


class ConfigError(LsmError):
    """An option is unknown, malformed, or contradicts the table: change the option."""


class MergerError(LsmError):
    """A record merger of another package failed, or returned rows that do not fit: mend it."""


class ReadOvertaken(LsmError):
    """A clean deleted files of the state that is read: read a later one, and retain more from now on."""


class SchemaError(LsmError):
    """The columns of a batch do not fit the table: change the batch or the table."""


class RegistryError(LsmError):
    """A schema of a message cannot be had: make the schema registry reachable, or register the schema; start again."""


class RecordError(LsmError):
    """A record has no usable key, ordering value or partition: correct or drop the record."""


class TopicRecreated(LsmError):
    """A Kafka topic was deleted and created again since the query read it: start with a new checkpoint."""


class CorruptFileError(LsmError):
    """A committed file is missing, damaged or violates the format: restore the file."""


class TableNotFound(LsmError):
    """The path holds no table: check the path, or create the table."""


class UnsupportedTable(LsmError):
    """The table uses a version, layout or feature that is not supported: use another release, or Hudi."""


class StorageError(LsmError):
    """The operating system refuses disk space, open files or access: remove the cause that the message names, retry."""


class MissingPackage(LsmError, ModuleNotFoundError):
    """An optional package is not installed: run the command that the message names."""


class CommitConflict(LsmError):
    """Another writer locks the table or has changed it: retry when that writer is done."""


class LockTimeout(CommitConflict):
    """Others held the table's lock for longer than the options say to wait: retry, or wait longer."""


class WriterTimeout(CommitConflict):
    """Another writer had a write pending for longer than the options say to wait: retry, or wait longer."""


class WriteConflict(CommitConflict):
    """Another write changed a file group that this one changes, after this one began: write the batch again."""


class ClusteringConflict(WriteConflict):
    """A clustering or another replace action replaces a file group that this write changes: write the batch again."""


class EarlyConflict(WriteConflict):
    """A write that began earlier is changing a file group that this one changes: write the batch again."""


class CommitUnknown(LsmError):
    """The storage failed while a write was decided or published: it is committed or undone by the next transaction.

    With a writer id and a batch id start again: a committed batch is not written twice. A write without them would be:
    write it again only if the timeline does not have it after the next transaction.
    """


class Fenced(LsmError):
    """This writer lost its lock or its instant to another writer: stop."""


class LockLost(Fenced):
    """A lock that another program honours was lost while it was held; nothing was published: write the batch again."""
