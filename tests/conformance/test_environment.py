"""A jar that is not the released one is never run."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from streaming_lsm.errors import ConfigError
from tests.conformance.environment import Environment, check_sha256, prepare


def test_a_jar_with_another_checksum_is_refused_and_fetched_anew_next_time(tmp_path: Path) -> None:
    jar = tmp_path / "hudi.jar"
    jar.write_bytes(b"tampered with")
    with pytest.raises(ConfigError, match="not the released jar"):
        check_sha256(jar, hashlib.sha256(b"released").hexdigest())
    assert not jar.exists()


def test_a_jar_with_the_right_checksum_stays(tmp_path: Path) -> None:
    jar = tmp_path / "hudi.jar"
    jar.write_bytes(b"released")
    check_sha256(jar, hashlib.sha256(b"released").hexdigest())
    assert jar.exists()


def test_setting_up_again_changes_nothing(judge_environment: Environment) -> None:
    steps: list[str] = []
    assert prepare(steps.append) == judge_environment
    assert not [step for step in steps if step.startswith("making")]
