"""Compare this package with other table formats that take upserts: ``python -m tests.bench.peers``.

*System*: a table format with one way of writing (`systems`). *Workload*: what it has to write or read, by a letter
(`systems.WORKLOADS`). *Run*: one process that measures one workload with one system. *Pair*: a system and a workload,
with all its runs; it is the unit of the result files.

``systems``      versions and environments
``environment``  makes the environments
``sizes``        counts of the full, the quick and the tiny form
``columns``      columns of the tables; ``changes``  Debezium changes; ``inputs``  files and topics that are written
``worker``       the process of a run; ``workloads``  what it does; ``adapters``  how each system writes and reads
``digest``       digest of a table's rows, which is equal for all systems
``results``      files of results; ``page``, ``plot``  docs/peers.md and its plot

``worker``, ``workloads``, ``adapters``, ``columns`` and ``digest`` run in the environments of the systems, and import
nothing of this package, but for the adapters of its own.
"""
