"""The settings of local sessions and of those that spark-submit starts."""

from __future__ import annotations

from pathlib import Path

from streaming_lsm.spark.session import DEFAULTS

CONF = Path(__file__).parents[3] / "conf" / "spark-defaults.conf"


def test_spark_submit_gets_the_settings_of_local_sessions() -> None:
    lines = [line.split() for line in CONF.read_text().splitlines() if line and not line.startswith("#")]
    assert {key: value for key, value in lines} == DEFAULTS
