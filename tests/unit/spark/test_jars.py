"""Jar lists and their cache; Ivy itself runs against a fake Java."""

from __future__ import annotations

import stat
from importlib.resources import files
from pathlib import Path

import pytest

from streaming_lsm.errors import ConfigError
from streaming_lsm.spark.jvm.jars import Coordinate, ivy_jar, parse_jar_list, resolve_jars
from streaming_lsm.spark.jvm.java import Java

LIST = "# two jars\norg.a:one:1.0\n\norg.b:two_2.13:2.0-rc1  # the second\n"
JARS = (Coordinate("org.a", "one", "1.0"), Coordinate("org.b", "two_2.13", "2.0-rc1"))


def java_that(tmp_path: Path, body: str) -> Java:
    """A Java whose program is a shell script; $lib is the folder that Ivy was told to fill."""
    program = tmp_path / "jdk" / "bin" / "java"
    program.parent.mkdir(parents=True)
    find_lib = 'for each in "$@"; do last="$each"; done\nlib="$(dirname "$last")"\nmkdir -p "$lib"\n'
    program.write_text(f"#!/bin/sh\n{find_lib}{body}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)
    return Java(tmp_path / "jdk", 17, "test")


def test_list_has_one_jar_a_line_and_comments() -> None:
    assert parse_jar_list(LIST, "list") == JARS
    assert [jar.file_name for jar in JARS] == ["one-1.0.jar", "two_2.13-2.0-rc1.jar"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("org.a:one", "my.txt: 'org.a:one' is no jar"),
        ("org.a:one:1:jar", "is no jar"),
        ("a:x:1\nb:x:1", "my.txt: listed twice: x-1.jar"),
    ],
)
def test_malformed_list_is_refused(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse_jar_list(text, "my.txt")


def test_packaged_lists_are_whole() -> None:
    lists = [each for each in files("streaming_lsm.kafka").iterdir() if each.name.endswith("_jars.txt")]
    counts = {each.name: len(parse_jar_list(each.read_text(encoding="utf-8"), each.name)) for each in lists}
    assert counts == {"broker_jars.txt": 46}


def test_fetched_jars_are_found_in_the_cache_without_a_process(tmp_path: Path) -> None:
    java = java_that(tmp_path, 'touch "$lib/one-1.0.jar" "$lib/two_2.13-2.0-rc1.jar"; echo run >> "${0%/*}/runs"')
    environment = {"STREAMING_LSM_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    first = resolve_jars(JARS, java=java, environment=environment)
    assert [path.name for path in first] == ["one-1.0.jar", "two_2.13-2.0-rc1.jar"]
    assert all(path.is_file() for path in first)
    assert resolve_jars(tuple(reversed(JARS)), java=java, environment=environment) == first[::-1]
    assert (java.home / "bin" / "runs").read_text() == "run\n"
    first[0].unlink()
    assert resolve_jars(JARS, java=java, environment=environment)[0].is_file()


def test_jar_that_ivy_silently_left_out_is_named_and_nothing_is_cached(tmp_path: Path) -> None:
    java = java_that(tmp_path, 'touch "$lib/one-1.0.jar"; echo "all went well"')
    environment = {"STREAMING_LSM_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    with pytest.raises(
        ConfigError, match=r"exit status 0\) did not fetch org\.b:two_2\.13:2\.0-rc1[\s\S]*all went well"
    ):
        resolve_jars(JARS, java=java, environment=environment)
    assert list((tmp_path / "cache" / "jars").iterdir()) == []


def test_certificate_error_comes_with_advice(tmp_path: Path) -> None:
    java = java_that(tmp_path, 'echo "javax.net.ssl.SSLHandshakeException: PKIX path building failed"; exit 1')
    environment = {"STREAMING_LSM_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    with pytest.raises(ConfigError, match="trustStore="):
        resolve_jars(JARS, java=java, environment=environment)


def test_why_a_jar_was_not_fetched_is_one_line(tmp_path: Path) -> None:
    said = "\tServer access error at url https://repo1.maven.org/x.pom (java.net.UnknownHostException: repo1)"
    java = java_that(tmp_path, f'printf ":: problems\\n\\n{said}\\n\\n:: USE VERBOSE\\n"; exit 1')
    environment = {"STREAMING_LSM_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    with pytest.raises(ConfigError) as refused:
        resolve_jars(JARS, java=java, environment=environment)
    assert str(refused.value) == (
        "Ivy (exit status 1) did not fetch org.a:one:1.0, org.b:two_2.13:2.0-rc1: " + said.strip()
    )


def test_fetch_that_hangs_is_given_up(tmp_path: Path) -> None:
    java = java_that(tmp_path, "exec sleep 60")
    environment = {"STREAMING_LSM_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    with pytest.raises(ConfigError, match="took longer than 1 s"):
        resolve_jars(JARS, java=java, environment=environment, timeout_seconds=1)


def test_ivy_comes_with_the_installed_spark() -> None:
    assert ivy_jar().name.startswith("ivy-")
