"""Query tables in Spark: as DataFrames, by a data source for SQL, and as a stream."""
