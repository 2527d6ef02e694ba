"""Workers are forked from a process that takes pyspark from where it is compiled, if that is the same one."""

from __future__ import annotations

from pathlib import Path
from zipfile import ZipFile

from streaming_lsm.spark.python_daemon import installed_first


def packed(path: Path, version: str) -> str:
    with ZipFile(path, "w") as written:
        written.writestr("pyspark/version.py", version)
    return str(path)


def installed(folder: Path, version: str) -> str:
    (folder / "pyspark").mkdir(parents=True)
    (folder / "pyspark" / "version.py").write_text(version)
    return str(folder)


def test_installed_pyspark_goes_before_the_same_one_in_a_zip_file(tmp_path: Path) -> None:
    pyspark, py4j, folder = packed(tmp_path / "pyspark.zip", "4.2.0"), str(tmp_path / "py4j.zip"), str(tmp_path)
    site = installed(tmp_path / "site", "4.2.0")
    assert installed_first([folder, pyspark, py4j, site]) == [folder, site, pyspark, py4j]


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
