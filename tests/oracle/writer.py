"""Golden tables: small version-10 tables that every reader has to read, with the rows that it has to find.

``GOLDEN[name](folder)`` makes the table ``folder/name``. None of it uses the reader: rows are literals.
"""

from . import golden_files, golden_merge
from .build import Layout, TableBuilder
from .golden import GOLDEN, GoldenTable

__all__ = ["GOLDEN", "GoldenTable", "Layout", "TableBuilder", "golden_files", "golden_merge"]
