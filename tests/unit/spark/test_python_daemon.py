"""Workers are forked from a process that takes pyspark from where it is compiled, if that is the same one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

from streaming_lsm.errors import ConfigError
from streaming_lsm.spark.batch_writer import check_package
from streaming_lsm.spark.python_daemon import ending_with_spark, installed_first


def packed(path: Path, version: str) -> str:
    with ZipFile(path, "w") as written:
        written.writestr("pyspark/version.py", version)
    return str(path)


def installed(folder: Path, version: str) -> str:
    (folder / "pyspark").mkdir(parents=True)
    (folder / "pyspark" / "version.py").write_text(version)
    return str(folder)


def test_installed_pyspark_goes_before_the_same_one_in_a_zip_file(tmp_path: Path) -> None:
    pyspark, py4j = packed(tmp_path / "pyspark.zip", "4.2.0"), str(tmp_path / "py4j-0.10.9-src.zip")
    folder, own = str(tmp_path), str(tmp_path / "own.zip")
    site = installed(tmp_path / "site", "4.2.0")
    assert installed_first([folder, pyspark, own, py4j, site]) == [folder, own, site, pyspark, py4j]


def test_another_pyspark_or_none_leaves_the_path_as_it_is(tmp_path: Path) -> None:
    pyspark, site = packed(tmp_path / "pyspark.zip", "4.2.0"), installed(tmp_path / "site", "4.1.0")
    (tmp_path / "broken.zip").write_bytes(b"no zip file")
    for path in (
        [pyspark, site],
        [pyspark],
        [site],
        [str(tmp_path / "broken.zip"), str(tmp_path / "absent.zip"), site],
    ):
        assert installed_first(path) == path


def test_workers_begin_with_everything_imported() -> None:
    seen = (
        "import sys; from pyspark import daemon; from streaming_lsm.spark import python_daemon; "
        "daemon.manager = lambda: print('streaming_lsm.write.partition_writer' in sys.modules); "
        "python_daemon.main()"
    )
    done = subprocess.run([sys.executable, "-c", seen], capture_output=True, text=True, check=True)
    assert done.stdout == "True\n"


def test_a_package_of_py_files_that_comes_too_late_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    check_package.__wrapped__()
    (tmp_path / "streaming_lsm").mkdir()
    (tmp_path / "streaming_lsm" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        ConfigError, match=rf"have imported .*, and Spark gave them {tmp_path}/streaming_lsm \(--py-files\)"
    ):
        check_package.__wrapped__()


@pytest.mark.parametrize("closed", [BrokenPipeError, ConnectionResetError, EOFError])
def test_a_worker_whose_connection_spark_closed_ends_without_a_stack(closed: type[Exception]) -> None:
    def worker(*_: object) -> int:
        raise closed

    assert ending_with_spark(worker)("socket", False) == 1


def test_other_errors_of_a_worker_are_told() -> None:
    def worker(*_: object) -> int:
        raise ValueError("other")

    with pytest.raises(ValueError, match="other"):
        ending_with_spark(worker)("socket", False)
    assert ending_with_spark(lambda *_: 0)("socket", True) == 0
