"""Encode and decode the key-value metadata of base files.

See docs/format/01-table.md, "Base file footer"; docs/format/10-rules.md, "Rule 16", "Rule 17", "Rule 19".
"""

from __future__ import annotations

from collections.abc import Mapping

from streaming_lsm.errors import CorruptFileError
from streaming_lsm.format.bloom import BloomFilter

AVRO_SCHEMA_KEY = "parquet.avro.schema"
BLOOM_KEY = "org.apache.hudi.bloomfilter"
BLOOM_TYPE_KEY = "hoodie_bloom_filter_type_code"
MIN_KEY = "hoodie_min_record_key"
MAX_KEY = "hoodie_max_record_key"


def base_file_footer(
    avro_schema: str, min_key: str | None, max_key: str | None, bloom: BloomFilter | None
) -> dict[str, str]:
    """Return the entries to add to the Parquet footer.

    Args:
        avro_schema: Avro JSON of the file's schema with meta columns.
        min_key, max_key: first and last record key; None for a file without rows, which has no such entries.
        bloom: bloom filter over the record keys; None for no filter, which only a bucket index allows.
    """
    footer = {AVRO_SCHEMA_KEY: avro_schema, "writer.model.name": "avro"}
    if min_key is not None and max_key is not None:
        footer |= {MIN_KEY: min_key, MAX_KEY: max_key}
    if bloom is not None:
        footer[BLOOM_KEY] = bloom.encode()
        if bloom.kind != "SIMPLE":
            footer[BLOOM_TYPE_KEY] = bloom.kind
    return footer


def bloom_of_footer(metadata: Mapping[bytes, bytes] | None, source: str) -> BloomFilter | None:
    """Decode the bloom filter of a base file; None if it has none.

    Raises:
        CorruptFileError: the entry is malformed.
        UnsupportedTable: an unknown type code or hash function.
    """
    entries = metadata or {}
    text = entries.get(BLOOM_KEY.encode())
    if text is None:
        return None
    if not text.isascii():
        raise CorruptFileError(f"{source}: the bloom filter is not base64; restore the file")
    kind = entries.get(BLOOM_TYPE_KEY.encode(), b"SIMPLE").decode(errors="replace")
    return BloomFilter.decode(text.decode(), kind, source)
