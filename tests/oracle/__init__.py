"""The independent oracle: reads, checks and writes version-10 LSM tables from the format notes alone.

It imports nothing of the package under test, so that a misreading there cannot hide here.

``reader``     snapshot and time travel: fastavro for the timeline, duckdb for files, SQL windows for the merge.
``validator``  every rule that a table at rest has to keep, as a list of violations.
``writer``     small golden tables with hand-written expectations; ``build`` is the tool they are made with.
"""
