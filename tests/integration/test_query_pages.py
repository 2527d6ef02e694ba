"""The snippets of docs/queries, run as they stand; those of a section return the same rows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

from streaming_lsm import LsmTable
from streaming_lsm.spark.versions import HAS_PYTHON_DATA_SOURCE
from tests.support.spark_frames import arrow_of

pytestmark = pytest.mark.skipif(not HAS_PYTHON_DATA_SOURCE, reason="PySpark 4.0 introduced data sources in Python")

PAGES = Path(__file__).parents[2] / "docs" / "queries"
SCHEMA = pa.schema(
    [
        pa.field("order_id", pa.string(), nullable=False),
        ("country", pa.string()),
        ("ts", pa.int64()),
        ("qty", pa.int64()),
    ]
)
OPTIONS: dict[str, object] = {
    "hoodie.table.name": "orders",
    "hoodie.datasource.write.recordkey.field": "order_id",
    "hoodie.datasource.write.partitionpath.field": "country",
    "hoodie.table.ordering.fields": "ts",
    "hoodie.clean.automatic": "false",
}
CHANGES = [("d", "o3", 1, None), ("i", "o4", None, 2), ("u", "o1", 3, 9)]
EXPECTED: dict[str, list[tuple[object, ...]]] = {
    "snapshot.md: Now": [("o1", 9)],
    "snapshot.md: Earlier": [("o1", 3), ("o2", 7), ("o3", 1)],
    "read-optimized.md: Base files": [("o1", 3), ("o2", 7), ("o3", 1)],
    "incremental.md: What is new": [("o1", 9), ("o4", 2)],
    "cdc.md: What has changed": CHANGES,
    "streams.md: Rows": [("o1", 9), ("o2", 7), ("o4", 2)],
    "streams.md: Changes": CHANGES,
    "look-ups.md: By key": [("o1", 9), ("o4", 2)],
}


def sections() -> dict[str, list[str]]:
    """The Python snippets of each section of each page."""
    found = {}
    for page in sorted(PAGES.glob("*.md")):
        _, *parts = re.split(r"^## (.*)$", page.read_text(encoding="utf-8"), flags=re.MULTILINE)
        for heading, text in zip(parts[::2], parts[1::2], strict=True):
            found[f"{page.name}: {heading}"] = re.findall(r"^```python\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    return found


def prelude() -> str:
    (found,) = re.findall(r"^```python\n(.*?)^```", (PAGES / "README.md").read_text("utf-8"), re.DOTALL | re.MULTILINE)
    return str(found)


@pytest.fixture(scope="module")
def orders(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LsmTable]:
    """Three orders, compacted; then an update, an insert and a delete. Snippets make tables in their own database."""
    lake = tmp_path_factory.mktemp("lake")
    table = LsmTable.create(lake / "orders", SCHEMA, OPTIONS)
    table.upsert(pa.table([["o1", "o2", "o3"], ["DE", "FR", "DE"], [1, 1, 1], [3, 7, 1]], schema=SCHEMA))
    table.compact()
    table.upsert(pa.table([["o1", "o4"], ["DE", "FR"], [2, 2], [9, 2]], schema=SCHEMA))
    table.delete(where="order_id = 'o3'")
    spark.sql(f"CREATE DATABASE pages LOCATION '{lake / 'warehouse'}'")
    spark.sql("USE pages")
    yield table
    spark.sql("USE default")
    spark.sql("DROP DATABASE pages CASCADE")


def rows_of(found: object) -> list[tuple[object, ...]]:
    if isinstance(found, DataFrame):
        found = arrow_of(found)
    if isinstance(found, polars.DataFrame):
        found = found.to_arrow()
    if isinstance(found, duckdb.DuckDBPyRelation):
        return sorted(found.fetchall(), key=repr)
    assert isinstance(found, pa.Table)
    return sorted(zip(*(column.to_pylist() for column in found.columns), strict=True), key=repr)


@pytest.mark.parametrize("section", EXPECTED)
def test_the_snippets_of_a_section_return_its_rows(section: str, orders: LsmTable) -> None:
    lake = str(Path(orders.path.removeprefix("file://")).parent)
    first = orders.timeline.completed_writes[0].completed
    names: dict[str, object] = {"begin": first, "moment": first}
    exec(compile(prelude(), "README.md", "exec"), names)
    snippets = sections()[section]
    assert snippets
    for snippet in snippets:
        names.pop("found", None)
        exec(compile(snippet.replace("/lake", lake), section, "exec"), names)
        assert rows_of(names["found"]) == EXPECTED[section], snippet


def test_every_section_with_snippets_is_run() -> None:
    assert {section for section, snippets in sections().items() if snippets} == EXPECTED.keys()


def test_every_page_that_is_linked_to_is_there() -> None:
    for page in PAGES.glob("*.md"):
        for target in re.findall(r"\]\(([^)#:]+)", page.read_text(encoding="utf-8")):
            assert (PAGES / target).is_file(), f"{page.name}: {target}"
