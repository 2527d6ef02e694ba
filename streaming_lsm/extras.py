"""Name the extra that installs an optional package.

The library itself needs numpy, pyarrow and fastavro. All else is imported where it is used, and an import that fails
says how to install what is missing.
"""

from __future__ import annotations

from streaming_lsm.errors import MissingPackage

_INSTALLED_BY = {
    "pyspark": "pip install 'streaming_lsm[spark]'",
    "pandas": "pip install 'streaming_lsm[spark]'",
    "kafka": "pip install 'streaming_lsm[kafka]'",
    "duckdb": "pip install duckdb",
}


def missing_package(needed_by: str, error: ModuleNotFoundError) -> ImportError:
    """Turn a failed import into an error that names the extra to install.

    Args:
        needed_by: what was asked for, such as ``LsmSink``.
        error: what Python said.

    Returns:
        The error to raise; `error` itself when the module is not one of an optional package.
    """
    package = (error.name or "").partition(".")[0]
    command = _INSTALLED_BY.get(package)
    if command is None:
        return error
    return MissingPackage(f"{needed_by} needs the package {package}, which is not installed: {command}", name=package)
