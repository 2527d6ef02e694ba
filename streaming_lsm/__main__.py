"""Start the command line: entry point of ``lsm`` and ``python -m streaming_lsm``."""

from __future__ import annotations

import sys

from streaming_lsm.scripts import importing


def main() -> int:
    """Run the command line. Its modules are imported here, so that Ctrl-C during the import ends in one line, too."""
    with importing("lsm"):
        from streaming_lsm.cli.commands import main as run
    return run()


if __name__ == "__main__":
    sys.exit(main())
