"""List the families of Hudi's options: the purpose of an option by the prefix of its key.

The prefixes are those of Hudi 1.2 (configuration page and constants). They distinguish an option of Hudi that this
release does not support from a misspelt key; supported options are defined in `streaming_lsm.config`.
"""

from __future__ import annotations

from collections.abc import Mapping

_FAMILIES = {
    "catalog sync": (
        "hoodie.meta.sync.",
        "hoodie.datasource.meta.sync.",
        "hoodie.datasource.meta_sync.",
    ),
    "Hive sync": ("hoodie.datasource.hive_sync.",),
    "BigQuery sync": ("hoodie.gcp.bigquery.sync.",),
    "access to Amazon Web Services": ("hoodie.aws.",),
    "Hudi Streamer": ("hoodie.streamer.", "hoodie.deltastreamer."),
    "Spark SQL": ("hoodie.spark.sql.",),
    "Hudi's own Spark data source": ("hoodie.datasource.read.", "hoodie.datasource.merge.", "hoodie.datasource.write."),
    "asynchronous compaction": ("hoodie.datasource.compaction.",),
    "compaction": ("hoodie.compact.", "hoodie.compaction."),
    "log compaction": ("hoodie.log.compaction.",),
    "clustering": ("hoodie.clustering.", "hoodie.datasource.clustering.", "hoodie.layout.optimize."),
    "cleaning": ("hoodie.clean.", "hoodie.cleaner."),
    "archiving the timeline": (
        "hoodie.archive.",
        "hoodie.archivelog.",
        "hoodie.commits.archival.",
        "hoodie.keep.",
        "hoodie.timeline.",
    ),
    "rollbacks": ("hoodie.rollback.",),
    "partition lifecycles": ("hoodie.partition.ttl.",),
    "table services": ("hoodie.table.service.", "hoodie.table.services."),
    "several writers": (
        "hoodie.write.concurrency.",
        "hoodie.write.lock.",
        "hoodie.write.conflict.",
        "hoodie.write.num.retries.on.conflict.",
    ),
    "markers": ("hoodie.markers.", "hoodie.write.markers."),
    "commit callbacks": ("hoodie.write.commit.callback.",),
    "the writing of records": ("hoodie.write.", "hoodie.combine.before."),
    "the merging of records": ("hoodie.merge.", "hoodie.merger.", "hoodie.record.merge.", "hoodie.payload."),
    "shuffles": ("hoodie.upsert.shuffle.", "hoodie.insert.shuffle.", "hoodie.delete.shuffle."),
    "bulk inserts": ("hoodie.bulkinsert.",),
    "data skipping": ("hoodie.enable.data.skipping", "hoodie.file.index."),
    "the committing of writes": ("hoodie.auto.commit",),
    "the choice of meta columns": ("hoodie.populate.meta.fields", "hoodie.meta.fields."),
    "storage layouts": ("hoodie.storage.layout.",),
    "the path of a table": ("hoodie.base.path",),
    "sizing files": ("hoodie.copyonwrite.", "hoodie.record.size."),
    "the bloom index": ("hoodie.bloom.index.", "hoodie.index.bloom."),
    "the simple index": ("hoodie.simple.index.", "hoodie.global.simple.index."),
    "the record index": ("hoodie.record.index.", "hoodie.global.index."),
    "expression indexes": ("hoodie.expression.index.",),
    "the bucket index": ("hoodie.bucket.index.", "hoodie.index.bucket."),
    "the choice of an index": ("hoodie.index.",),
    "indexes of the metadata table": (
        "hoodie.metadata.index.",
        "hoodie.metadata.record.",
        "hoodie.metadata.bloom.",
        "hoodie.metadata.global.record.",
        "hoodie.metadata.partitioned.record.",
    ),
    "the metadata table": ("hoodie.metadata.",),
    "Parquet files": ("hoodie.parquet.",),
    "ORC files": ("hoodie.orc.",),
    "HFiles": ("hoodie.hfile.",),
    "Lance files": ("hoodie.lance.",),
    "log files": ("hoodie.logfile.",),
    "change data capture": ("hoodie.table.cdc.", "hoodie.cdc."),
    "the properties of a table": ("hoodie.table.",),
    "schema evolution": ("hoodie.schema.on.read.", "hoodie.avro.schema"),
    "key generators": ("hoodie.keygen.",),
    "the timeline server": ("hoodie.embed.timeline.server",),
    "the file system view": ("hoodie.filesystem.",),
    "memory of merges": ("hoodie.memory.", "hoodie.common.spillable.", "hoodie.common.diskmap."),
    "heartbeats": ("hoodie.client.heartbeat.",),
    "clocks": ("hoodie.time.generator.",),
    "metrics": ("hoodie.metrics.",),
    "the metaserver": ("hoodie.metaserver.",),
    "bootstrapping tables": ("hoodie.bootstrap.",),
    "checks before a commit": ("hoodie.precommit.validators.", "hoodie.prewrite."),
    "error tables": ("hoodie.errortable.",),
    "consistency checks of object stores": ("hoodie.consistency.check.", "hoodie.optimistic.consistency."),
}

PURPOSES = {prefix: purpose for purpose, prefixes in _FAMILIES.items() for prefix in prefixes}
"""Purpose of a family of options, by the prefix of their keys."""


def family_of(key: str, prefixes: Mapping[str, str] = PURPOSES) -> str | None:
    """Find the family of a key: the longest of `prefixes` that it begins with; None when there is none."""
    found = [prefix for prefix in prefixes if key.startswith(prefix)]
    return max(found, key=len, default=None)
