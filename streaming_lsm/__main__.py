"""``lsm`` and ``python -m streaming_lsm``."""

from __future__ import annotations

import sys

from streaming_lsm.scripts import importing


def main() -> int:
    """Run the command line; Ctrl-C ends it in one line while it is being imported, too."""
    with importing("lsm"):
        from streaming_lsm.cli.commands import main as run
    return run()


if __name__ == "__main__":
    sys.exit(main())
