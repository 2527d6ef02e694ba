"""``lsm upgrade`` and ``lsm downgrade``: change the version of a table, or its storage layout."""

from __future__ import annotations

import argparse

from streaming_lsm.cli.arguments import opened, service_arguments, write_lines
from streaming_lsm.errors import ConfigError
from streaming_lsm.format.table.properties import CURRENT_VERSION, DEFAULT_LAYOUT, LSM_TREE, WRITE_VERSIONS


def upgrade_verb(upgrade: argparse.ArgumentParser) -> None:
    """Describe and run ``lsm upgrade``."""
    service_arguments(upgrade)
    upgrade.add_argument(
        "--to",
        type=int,
        choices=WRITE_VERSIONS,
        metavar="VERSION",
        help="9 or 10, default 10; with --storage-layout alone the version stays",
    )
    upgrade.add_argument("--storage-layout", choices=(DEFAULT_LAYOUT, LSM_TREE), help="stays as it is if left out")
    upgrade.set_defaults(run=_upgrade)


def downgrade_verb(downgrade: argparse.ArgumentParser) -> None:
    """Describe and run ``lsm downgrade``."""
    service_arguments(downgrade)
    older = [version for version in WRITE_VERSIONS if version < CURRENT_VERSION]
    downgrade.add_argument(
        "--to", type=int, choices=older, metavar="VERSION", default=max(older), help="9 or 8, default 9"
    )
    downgrade.set_defaults(run=_downgrade)


def _upgrade(arguments: argparse.Namespace) -> None:
    target = CURRENT_VERSION if arguments.to is None and arguments.storage_layout is None else arguments.to
    _change_version(arguments, target, arguments.storage_layout, up=True)


def _downgrade(arguments: argparse.Namespace) -> None:
    _change_version(arguments, arguments.to, None, up=False)


def _change_version(arguments: argparse.Namespace, target: int | None, layout: str | None, *, up: bool) -> None:
    table = opened(arguments)
    if target is not None and (target < table.config.version if up else target > table.config.version):
        other = "downgrade" if up else "upgrade"
        raise ConfigError(f"the table has version {table.config.version}: use lsm {other} --to {target}")
    if arguments.dry_run:
        write_lines([*table.plan_version(target, layout).lines()] or ["nothing to do"], None)
        return
    changed = table.change_version(target, layout)
    print(f"{changed.path} has version {changed.config.version}, storage layout {changed.config.storage_layout}")
