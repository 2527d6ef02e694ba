"""Parse the command line of ``lsm`` and run its verb.

*Verb*: a subcommand; each parses its arguments, calls `LsmTable` and prints the result. ``read`` and the service verbs
take options by ``-o`` and ``--properties``. *Service verb*: a verb that changes a table; it takes ``--dry-run``.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

import pyarrow as pa

from streaming_lsm import __version__
from streaming_lsm.cli.archive import archive_verb
from streaming_lsm.cli.clean import clean_verb
from streaming_lsm.cli.cluster import cluster_verb
from streaming_lsm.cli.columns import drop_columns_verb, rename_columns_verb
from streaming_lsm.cli.compact import compact_verb
from streaming_lsm.cli.copy import copy_verb
from streaming_lsm.cli.files import files_verb
from streaming_lsm.cli.history import history_verb
from streaming_lsm.cli.index import index_verb
from streaming_lsm.cli.lookup import lookup_verb
from streaming_lsm.cli.options_page import options_page
from streaming_lsm.cli.partitions import delete_partitions_verb, expire_partitions_verb
from streaming_lsm.cli.read import read_verb
from streaming_lsm.cli.repair import repair_verb
from streaming_lsm.cli.show import show_verb
from streaming_lsm.cli.states import restore_verb, rollback_verb, savepoint_verb
from streaming_lsm.cli.timeline import timeline_verb
from streaming_lsm.cli.verify import verify_verb
from streaming_lsm.cli.versions import downgrade_verb, upgrade_verb
from streaming_lsm.errors import LsmError
from streaming_lsm.scripts import INTERRUPTED, fail


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb.

    Returns:
        The exit status: 0 on success, 1 if ``lsm verify`` or ``lsm index verify`` found faults, 2 after an error, which
        is printed as one line, 130 after Ctrl-C.
    """
    given = sys.argv[1:] if arguments is None else arguments
    for argument in given:
        if not _is_text(argument):
            return fail("lsm", f"argument {argument!a} is not UTF-8 text", 2)
    parsed = _parser().parse_args(given)
    status: int | None = 0
    try:
        status = parsed.run(parsed)
        sys.stdout.flush()
    except LsmError as error:
        return fail("lsm", error, 2)
    except KeyboardInterrupt:
        return fail("lsm", "interrupted", INTERRUPTED)
    except BrokenPipeError:  # the reader of the pipe, such as head, has ended
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        return fail("lsm", f"{error.filename or 'input or output'}: {error.strerror or error}", 2)
    except pa.ArrowInvalid as error:
        return fail("lsm", f"the rows cannot be written in this format: {error}; use jsonl or parquet", 2)
    return status or 0


def _is_text(argument: str) -> bool:
    try:
        argument.encode()
    except UnicodeEncodeError:  # bytes that are none are surrogates in it
        return False
    return True


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="lsm", description="Read, compact, cluster, clean, copy and upgrade Hudi tables."
    )
    parser.add_argument("--version", action="version", version=f"lsm {__version__}")
    verbs = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    read_verb(verbs.add_parser("read", help="print the rows or the changes of a table"))
    lookup_verb(verbs.add_parser("lookup", help="print the rows of some record keys"))
    show_verb(verbs.add_parser("show", help="show the settings of a table, and which services are due and why not"))
    files_verb(verbs.add_parser("files", help="list the file groups of a table, their slices, files and sorted runs"))
    verify_verb(verbs.add_parser("verify", help="check that all files are there, readable, sorted and as committed"))
    history_verb(verbs.add_parser("history", help="list the versions of a record key in the files"))
    timeline_verb(verbs.add_parser("timeline", help="list the table's actions"))
    index_verb(verbs.add_parser("index", help="create, drop, show and verify the indexes of the metadata table"))
    compact_verb(verbs.add_parser("compact", help="merge log files into base files"))
    cluster_verb(verbs.add_parser("cluster", help="sort rows by columns into new file groups"))
    clean_verb(verbs.add_parser("clean", help="delete file slices that no retained commit needs"))
    archive_verb(verbs.add_parser("archive", help="move old actions from the timeline into the history"))
    savepoint_verb(verbs.add_parser("savepoint", help="keep the table as of a write, or list what is kept"))
    restore_verb(verbs.add_parser("restore", help="return to a savepoint: undo all that was done after it"))
    rollback_verb(verbs.add_parser("rollback", help="undo the last completed write"))
    delete_partitions_verb(verbs.add_parser("delete-partitions", help="delete all rows of some partitions"))
    expire_partitions_verb(verbs.add_parser("expire-partitions", help="delete the partitions that have expired"))
    drop_columns_verb(verbs.add_parser("drop-columns", help="drop columns of a table, or fields inside columns"))
    rename_columns_verb(verbs.add_parser("rename-columns", help="rename columns of a table, or fields inside columns"))
    repair_verb(verbs.add_parser("repair", help="rebuild a lost timeline from data files: proposal first"))
    upgrade_verb(verbs.add_parser("upgrade", help="raise the version of a table, or change its storage layout"))
    downgrade_verb(verbs.add_parser("downgrade", help="lower the version of a table, for older readers"))
    copy_verb(verbs.add_parser("copy", help="write the rows of a table to a new one"))
    options = verbs.add_parser("options", help="print all options with their defaults as Markdown")
    options.set_defaults(run=lambda _: print(options_page(), end=""))
    return parser
