"""Fetch lists of jars from Maven Central with the Ivy that PySpark contains.

*Jar list*: a text file that names every jar by its Maven coordinate, so that the tested versions are fetched and
nothing is resolved transitively. ``spark.jars.packages`` is not used: it resolves dependencies by itself and costs
seconds in every session.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from xml.sax.saxutils import quoteattr

from streaming_lsm.errors import ConfigError
from streaming_lsm.spark.jvm.java import Java, Releases, cache_folder, find_java, trust_store_advice

_COORDINATE = re.compile(r"[\w.\-]+:[\w.\-]+:[\w.\-]+")

_JAVA = Releases(8)
"""Releases of Java that run Ivy."""

_SETTINGS = """<ivysettings>
  <settings defaultResolver="central"/>
  <caches defaultCacheDir={cache}/>
  <resolvers><ibiblio name="central" m2compatible="true"/></resolvers>
</ivysettings>
"""

_MODULE = """<ivy-module version="2.0">
  <info organisation="streaming_lsm" module="jars"/>
  <configurations><conf name="default"/></configurations>
  <dependencies>
{dependencies}
  </dependencies>
</ivy-module>
"""


@dataclass(frozen=True, slots=True)
class Coordinate:
    """Identifies a jar on Maven Central by group, artifact and version."""

    group: str
    artifact: str
    version: str

    @property
    def file_name(self) -> str:
        """Name of the jar in the cache."""
        return f"{self.artifact}-{self.version}.jar"

    def __str__(self) -> str:
        return f"{self.group}:{self.artifact}:{self.version}"


def parse_jar_list(text: str, source: str) -> tuple[Coordinate, ...]:
    """Parse a jar list: one ``group:artifact:version`` a line, ``#`` begins a comment.

    Raises:
        ConfigError: a line is no coordinate, or two lines give the same file name; the message names `source`.
    """
    lines = [line.partition("#")[0].strip() for line in text.splitlines()]
    for line in filter(None, lines):
        if not _COORDINATE.fullmatch(line):
            raise ConfigError(f"{source}: {line!r} is no jar: write group:artifact:version")
    jars = tuple(Coordinate(*line.split(":")) for line in lines if line)
    names = [jar.file_name for jar in jars]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ConfigError(f"{source}: listed twice: {', '.join(twice)}")
    return jars


def resolve_jars(
    jars: Sequence[Coordinate],
    *,
    java: Java | None = None,
    environment: Mapping[str, str] | None = None,
    timeout_seconds: float = 300,
) -> list[Path]:
    """Return the paths of jars in the cache, and fetch them into it if they are missing.

    The cache folder of a list is ``<cache folder>/jars/<hash of the list>``. Several processes may resolve the same
    list at the same time.

    Args:
        jars: the jars, without their dependencies.
        java: the Java that runs Ivy; `find_java` when not given.
        environment: variables for the cache folder and the child process; those of the process when not given.
        timeout_seconds: limit for the whole download.

    Raises:
        ConfigError: a jar cannot be fetched; the message contains Ivy's reason.
    """
    variables = dict(os.environ if environment is None else environment)
    listed = "\n".join(sorted(map(str, jars)))
    folder = cache_folder(variables) / "jars" / hashlib.sha256(listed.encode()).hexdigest()[:16]
    if not _missing(folder, jars):
        return [folder / jar.file_name for jar in jars]
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".fetching-", dir=folder.parent) as scratch:
        fetched = _fetch(jars, Path(scratch), java or find_java(variables, releases=_JAVA), variables, timeout_seconds)
        _publish(fetched, folder, jars)
    return [folder / jar.file_name for jar in jars]


def _missing(folder: Path, jars: Iterable[Coordinate]) -> list[str]:
    return [str(jar) for jar in jars if not (folder / jar.file_name).is_file()]


def _fetch(
    jars: Sequence[Coordinate], scratch: Path, java: Java, variables: Mapping[str, str], timeout_seconds: float
) -> Path:
    (scratch / "settings.xml").write_text(_SETTINGS.format(cache=quoteattr(str(scratch / "ivy"))), encoding="utf-8")
    (scratch / "ivy.xml").write_text(_MODULE.format(dependencies=_dependencies(jars)), encoding="utf-8")
    # Without "bundle", jars packaged for OSGi are silently left out, with exit status 0.
    command = [
        str(java.program), "-jar", str(ivy_jar()), "-settings", str(scratch / "settings.xml"),
        "-ivy", str(scratch / "ivy.xml"), "-types", "jar", "bundle",
        "-retrieve", str(scratch / "lib" / "[artifact]-[revision].[ext]"),
    ]  # fmt: skip
    try:
        done = subprocess.run(
            command, env=dict(variables), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            timeout=timeout_seconds, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"fetching {len(jars)} jars took longer than {timeout_seconds:.0f} s: check the network and try again"
        ) from None
    missing = _missing(scratch / "lib", jars)
    if done.returncode or missing:
        named = ", ".join(missing[:5]) + (f" and {len(missing) - 5} more" if len(missing) > 5 else "")
        raise ConfigError(
            f"Ivy (exit status {done.returncode}) did not fetch {named or 'everything'}: "
            f"{trust_store_advice(java, done.stdout) or _reason(done.stdout)}"
        )
    return scratch / "lib"


def _reason(output: str) -> str:
    """Return the line of Ivy's output that names the cause: a server error, an exception, or else the last line."""
    lines = [line.strip() for line in output.splitlines() if line.strip(" \t:")]
    for sign in ("Server access error", "Exception", "not found"):
        told = [line for line in lines if sign in line]
        if told:
            return told[0]
    return lines[-1] if lines else "it printed nothing"


def _dependencies(jars: Iterable[Coordinate]) -> str:
    # "master" is the jar itself; the other Maven scopes are its dependencies.
    return "\n".join(
        f"    <dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)} rev={quoteattr(jar.version)}"
        ' transitive="false" conf="default-&gt;master"/>'
        for jar in jars
    )


def _publish(fetched: Path, folder: Path, jars: Sequence[Coordinate]) -> None:
    if folder.exists() and _missing(folder, jars):
        shutil.rmtree(folder)
    try:
        fetched.rename(folder)
    except OSError:
        # Another process has published the same list in the meantime.
        if _missing(folder, jars):
            raise


def ivy_jar() -> Path:
    """Return the path of the Ivy jar in the installed PySpark.

    Raises:
        ConfigError: PySpark is not installed, or has no Ivy jar.
    """
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        raise ConfigError("PySpark is not installed: pip install '.[spark]' in a checkout")
    folder = Path(spark.origin).parent / "jars"
    found = sorted(folder.glob("ivy-*.jar"))
    if not found:
        raise ConfigError(f"no ivy-*.jar in {folder}: fetch the jars by hand and pass their paths")
    return found[-1]
