"""Store a table in an object store: S3, Google Cloud Storage, Azure, or the memory of a process for tests."""
