"""The cells of the matrix: a version of Spark, one of Python, and what is installed beside them."""

from __future__ import annotations

import configparser
import re
from dataclasses import dataclass
from pathlib import Path

from streaming_lsm.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
SPARKS = {"3.5": "3.5.9", "4.0": "4.0.5", "4.1": "4.1.4", "4.2": "4.2.1", "4.3": "4.3.0"}
PYTHONS = ((3, 11), (3, 12), (3, 13))
OLDEST = "oldest"


@dataclass(frozen=True)
class Cell:
    """One environment: Spark, Python, and whether everything beside Python is the oldest that setup.cfg admits."""

    spark: str
    python: tuple[int, int]
    oldest: bool = False

    @property
    def name(self) -> str:
        """Such as ``3.5-py311``, or ``oldest-py311``."""
        return f"{OLDEST if self.oldest else self.spark}-py{self.python[0]}{self.python[1]}"

    @property
    def pyspark(self) -> str:
        """The exact version of PySpark."""
        return oldest_of("pyspark") if self.oldest else SPARKS[self.spark]

    def constraints(self) -> str:
        """The exact versions of what is installed: the tested ones of conf/constraints.txt but for Spark's own.

        An oldest cell has the lower bounds of setup.cfg instead, where it states one.
        """
        pinned = dict(line.split("==") for line in _lines(ROOT / "conf" / "constraints.txt"))
        del pinned["py4j"]
        pinned["pyspark"] = self.pyspark
        if self.oldest:
            pinned |= {name: oldest_of(name) for name in ("fastavro", "numpy", "pandas", "pyarrow", "kafka-python")}
            del pinned["python-dateutil"], pinned["pytz"]
        return "".join(f"{name}=={version}\n" for name, version in pinned.items())

    def needs(self) -> list[str]:
        """Packages that this Spark needs on this Python beside those of setup.cfg."""
        return ["setuptools"] if self.pyspark < "4" and self.python >= (3, 12) else []


CELLS = (*(Cell(spark, python) for spark in SPARKS for python in PYTHONS), Cell("3.5", (3, 11), oldest=True))


def chosen(names: str) -> tuple[Cell, ...]:
    """The cells of the given names, separated by blanks; all without a name.

    Raises:
        ConfigError: there is no cell of a name.
    """
    known = {cell.name: cell for cell in CELLS}
    wrong = [name for name in names.split() if name not in known]
    if wrong:
        raise ConfigError(f"MATRIX: no cell {wrong[0]!r}; there are {' '.join(known)}")
    return tuple(known[name] for name in names.split()) or CELLS


def oldest_of(package: str) -> str:
    """The lower bound of a package in setup.cfg, as a whole version."""
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    listed = settings["options"]["install_requires"] + "".join(settings["options.extras_require"].values())
    bound = re.search(rf"^{re.escape(package)}>=([\d.]+)", listed, re.MULTILINE)
    if bound is None:
        raise ConfigError(f"setup.cfg states no lower bound for {package}")
    return bound[1] + ".0" * (2 - bound[1].count("."))


def _lines(file: Path) -> list[str]:
    return [line for line in file.read_text(encoding="utf-8").splitlines() if line and not line.startswith("#")]
