"""Name the command that installs a missing optional package.

The library requires numpy, pyarrow and fastavro. *Optional packages*, such as pyspark, are imported by the modules that
use them; *extras* of this distribution, such as ``spark``, install them.
"""

from __future__ import annotations

from streaming_lsm.errors import MissingPackage

# The distribution is not in a package registry, so that the commands install its extras from a checkout.
_INSTALLED_BY = {
    "pyspark": "pip install '.[spark]' in a checkout",
    "pandas": "pip install '.[spark]' in a checkout",
    "obstore": "pip install '.[object-store]' in a checkout",
    "kafka": "pip install '.[kafka]' in a checkout",
    "duckdb": "pip install duckdb",
    "polars": "pip install polars",
}


def missing_package(needed_by: str, error: ModuleNotFoundError) -> ImportError:
    """Convert a failed import into an error that names the command to run.

    Args:
        needed_by: the name or program that needs the package, such as ``LsmSink``.
        error: the error of the import.

    Returns:
        The error to raise; `error` itself when the module belongs to no optional package.
    """
    package = (error.name or "").partition(".")[0]
    command = _INSTALLED_BY.get(package)
    if command is None:
        return error
    return MissingPackage(f"{needed_by} needs the package {package}, which is not installed: {command}", name=package)
