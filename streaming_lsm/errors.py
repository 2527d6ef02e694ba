"""Every error this package raises, one class per answer to "what can the caller do?"."""


class LsmError(Exception):
    """Root of all errors raised by this package."""


class ConfigError(LsmError):
    """An option is unknown, malformed, or contradicts the table: change the option."""


class SchemaError(LsmError):
    """The columns of a batch do not fit the table: change the batch or the table."""


class RecordError(LsmError):
    """A record has no usable key, ordering value or partition: mend or drop the record."""


class CorruptFileError(LsmError):
    """A committed file does not hold what the format says: restore the file."""


class TableNotFound(LsmError):
    """No table at this path: check the path, or create the table."""


class UnsupportedTable(LsmError):
    """The table uses a version, layout or feature that this release does not read or write."""


class StorageError(LsmError):
    """The system does not give room, open files or access: see to what the message names, and try again."""


class MissingPackage(LsmError, ImportError):
    """An optional package is not installed: run the command that the message names."""


class CommitConflict(LsmError):
    """Another writer is in the way: retry when it is done."""


class CommitUnknown(LsmError):
    """Whether the commit took effect could not be learnt: look at the timeline, do not write again."""


class Fenced(LsmError):
    """This writer lost its lock or its instant to another one: stop."""
