# `make help` lists the targets. Each installs its prerequisites; a fresh machine needs only Python 3.11 or newer.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTEST := $(BIN)/python -m pytest -q
DEMO_EVENTS ?= 20000
SERVICES_BATCHES ?= 500
# Tests that flush thousands of small files use memory for a disk where there is one; integration tests never do.
# Containers often have 64 MiB of it only; unit tests leave half a GiB there.
FAST := TMPDIR=$(shell test -w /dev/shm && df -Pk /dev/shm | awk 'NR == 2 && $$4 > 4000000 {found = 1} END {print found ? "/dev/shm" : "/tmp"}' || echo /tmp)
# A Java process of a test lives for seconds: optimised compilation costs it more than it gains, and with Spark's classes
# verified in an archive it takes a third less of the processor. Java ignores an archive of another Java.
CLASSES := build/tests/spark_classes.jsa
JAVA_OPTIONS := -XX:TieredStopAtLevel=1 -XX:+UseSerialGC
SHORT_LIVED_JAVA := SPARK_SUBMIT_OPTS='$(JAVA_OPTIONS) -XX:SharedArchiveFile=$(abspath $(CLASSES)) -Xlog:cds=off' \
	SPARK_LAUNCHER_OPTS='$(JAVA_OPTIONS)'
# These meet faults at some of the storage calls, or try some of their cases only, unless LSM_ALL_FAULTS is set.
SAMPLED_CALLS := tests/integration/test_kafka_job.py tests/unit/metadata/test_column_stats.py tests/unit/metadata/test_crashes.py tests/unit/metadata/test_index_build.py tests/unit/metadata/test_index_made_again.py tests/unit/metadata/test_swapped_files.py \
	tests/unit/services/archiving/test_runner.py \
	tests/unit/services/cleaning/test_runner.py tests/unit/services/test_interleavings.py \
	tests/unit/services/test_interleavings_on_objects.py tests/unit/services/test_metadata_table.py \
	tests/unit/services/test_completed_rollback.py tests/unit/services/test_repair.py tests/unit/services/test_repaired_replacements.py tests/unit/services/test_restore.py tests/unit/services/test_savepoints.py tests/unit/services/test_scheduler.py tests/unit/services/ttl/test_expiry.py tests/unit/services/test_service_crashes.py \
	tests/unit/test_named_failures.py tests/unit/test_overwrites.py tests/unit/txn/test_crash_matrix.py tests/unit/txn/test_lock_providers.py
SAMPLED_CASES := tests/integration/test_histories_by_spark.py tests/golden/test_damaged_logs.py tests/golden/test_table_copies.py tests/golden/test_version_changes.py \
	tests/property/test_avro_against_json.py tests/property/test_avro_columns.py tests/property/test_batches_against_a_model.py \
	tests/property/test_copy_on_write_against_a_model.py tests/property/test_decoding_against_spark.py tests/property/test_evolving_tables.py \
	tests/property/test_hash_merge_against_a_model.py tests/property/test_histories_against_a_model.py tests/property/test_incremental_cleans.py tests/property/test_lookup_indexes_against_a_model.py tests/property/test_many_documents_against_one_by_one.py tests/property/test_pruned_scans.py \
	tests/property/test_services_against_a_model.py tests/property/test_tombstones_against_a_model.py \
	tests/unit/decode/json/test_columns.py tests/unit/format/avro/test_record_reader.py tests/unit/format/hfile/test_hfile.py \
	tests/unit/format/log/test_delete_block.py tests/unit/kafka/test_protocol.py \
	tests/unit/query/prune/test_key_blooms.py tests/unit/query/test_one_rule.py tests/unit/query/test_slice_merge.py tests/unit/file_group/test_slice_files.py tests/property/test_merge_laws.py tests/property/test_log_fold_laws.py tests/unit/services/compaction/test_hybrid.py \
	tests/unit/services/compaction/test_change_logs.py tests/unit/services/compaction/test_copied_row_groups.py tests/unit/services/compaction/test_kept_deletes.py tests/unit/services/compaction/test_log_task.py \
	tests/unit/services/compaction/test_log_compaction_queries.py tests/unit/services/archiving/test_lengths.py tests/unit/test_wide_tables.py \
	tests/unit/services/test_change_logs.py tests/unit/timeline/test_properties_file.py tests/unit/write/test_change_logs.py tests/unit/write/buffer/test_spilled_run.py tests/unit/write/test_memory.py
# Some of what a power loss may leave here, all of it in faults-calls.
POWER_LOSS := tests/faults/power_loss
# The tests that write tables take as long as all other unit tests.
WRITING := tests/unit/services tests/unit/txn tests/unit/write
METADATA := tests/unit/metadata
# Groups of about the same length, so that both cores have work until the end.
READING := $(addprefix tests/unit/,cli file_group index merge query)
# Tests of integration that start processes of their own.
PROCESSES := $(addprefix tests/integration/,test_bad_batches.py test_kafka_job.py test_kafka_source.py test_kafka_topics.py test_object_stores.py \
	test_readme.py test_schema_registry.py test_service_jobs.py)
# Integration waits for processes and disks half of its time: it is started first, and two cores run five groups.
SIDE_BY_SIDE := $(MAKE) --no-print-directory --jobs=5 $(if $(filter output-sync,$(.FEATURES)),--output-sync=target)

comma := ,
# Run a command that says nothing for minutes, and tell every four seconds how far it is.
define alive
	(begun=$$(date +%s); while sleep 4; do echo "… installing: $$(du -sh $(VENV) 2> /dev/null | cut -f1) after $$(( $$(date +%s) - begun )) s"; done) & \
	teller=$$!; trap "kill $$teller" EXIT; $(1)
endef

.DEFAULT_GOAL := help
.PHONY: help install constraints run-kafka-demo demo-services docs lint format test unit unit-writing unit-metadata unit-reading unit-others property golden oracle simulation \
	integration integration-spark integration-processes bench bench-check bench-peers bench-amplification faults faults-processes faults-calls faults-cases \
	faults-schedules faults-indexes conformance matrix matrix-speed \
	test-size clean

define group
	@begun=$$(date +%s); echo "== $(1)"; $(2); status=$$?; \
	echo "== $(1): $$(( $$(date +%s) - begun )) s, $$([ $$status = 0 ] && echo passed || echo FAILED)"; exit $$status
endef

help:  ## List the targets
	@awk 'BEGIN {FS = ":.*## "} /^##@ / {printf "\n%s\n", substr($$0, 5)} /^[a-z-]+:.*## / {printf "  %-16s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

##@ Use

install: $(INSTALLED)  ## Create .venv with the pinned versions of conf/constraints.txt

$(INSTALLED): setup.cfg pyproject.toml conf/constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed, this is " + sys.version)'
	@$(call alive,$(PYTHON) -m venv $(VENV) && $(BIN)/python -m pip install --quiet --constraint conf/constraints.txt --editable '.[spark$(comma)kafka$(comma)cli$(comma)object-store$(comma)bench$(comma)dev]')
	@touch $@

run-kafka-demo: install  ## Stream events from a Kafka broker of its own to a table and compare; DEMO_EVENTS, DEMO_FORMAT, DEMO_KILL; 1 min
	DEMO_EVENTS=$(DEMO_EVENTS) $(BIN)/python jobs/run_kafka_demo.py

demo-services: install  ## Stream 500 batches with hybrid compaction, cleaning, archiving, savepoint and restore; SERVICES_BATCHES; 10 min
	$(FAST) $(BIN)/python -m tests.services_demo --batches $(SERVICES_BATCHES) --plot services.png

##@ Develop

test: install  ## Run all that CI runs, five groups at a time; each prints its output and time when it ends
	@$(call group,test,$(SIDE_BY_SIDE) integration-spark integration-processes unit-writing unit-metadata unit-reading unit-others property golden simulation oracle lint)

lint: install  ## Check style, types and the import contracts
	$(call group,lint,$(BIN)/ruff check --quiet --config conf/ruff.toml . && $(BIN)/ruff format --check --quiet --config conf/ruff.toml . && $(BIN)/mypy && $(BIN)/lint-imports --no-cache)

unit: unit-writing unit-metadata unit-reading unit-others  ## Test one module at a time

unit-writing: install
	$(call group,unit-writing,$(FAST) $(PYTEST) $(WRITING) $(POWER_LOSS))

unit-metadata: install
	$(call group,unit-metadata,$(FAST) $(PYTEST) $(METADATA))

unit-reading: install
	$(call group,unit-reading,$(FAST) $(PYTEST) $(READING))

unit-others: install
	$(call group,unit-others,$(FAST) $(SHORT_LIVED_JAVA) $(PYTEST) tests/unit $(addprefix --ignore=,$(WRITING) $(METADATA) $(READING)))

property: install  ## Test random batches against a model
	$(call group,property,$(FAST) $(SHORT_LIVED_JAVA) $(PYTEST) tests/property)

golden: install  ## Compare with files and rows that Hudi wrote
	$(call group,golden,$(FAST) $(PYTEST) tests/golden)

oracle: install  ## Test the independent reader, and compare it with the package's
	$(call group,oracle,$(FAST) $(PYTEST) tests/oracle)

simulation: install  ## Run seeded schedules of writers, services and failures; LSM_SCHEDULES (25), LSM_SEED for one
	$(call group,simulation,$(FAST) $(PYTEST) tests/faults/simulation)

$(CLASSES): $(INSTALLED)
	@mkdir -p $(@D)
	@# Java writes the archive when it ends: then the pipe closes. One that cannot write it leaves an empty file, which is ignored.
	SPARK_SUBMIT_OPTS='$(JAVA_OPTIONS) -XX:ArchiveClassesAtExit=$(abspath $@.new) -Xlog:cds=off -Xlog:cds+dynamic=off' \
		$(PYTEST) -s tests/integration/test_batch_numbers.py 2>&1 | tail -1
	@if [ -f $@.new ]; then mv -f $@.new $@; else touch $@; fi

integration: integration-spark integration-processes  ## Test with Spark, Kafka, killed processes, and the snippets of the README

# The archive is made in the recipe, since make would give the place of a prerequisite that ended to another group.
integration-spark: install
	$(call group,integration-spark,$(MAKE) --no-print-directory $(CLASSES) && \
		$(SHORT_LIVED_JAVA) $(PYTEST) tests/integration $(addprefix --ignore=,$(PROCESSES)))

integration-processes: install
	$(call group,integration-processes,$(SHORT_LIVED_JAVA) $(PYTEST) $(PROCESSES))

bench: install  ## Measure ratios to pyarrow and Spark: table, build/bench/results.json and a plot; needs an idle machine
	$(BIN)/python -m tests.bench

bench-check: install  ## Compare micro-benchmarks with tests/bench/baseline.json, red past 15 %; BENCH_RECORD=1 records; 1 to 3 min
	$(FAST) $(BIN)/python -m tests.bench.check $(if $(BENCH_RECORD),--record)

bench-peers: install  ## Measure other table formats beside this package and write docs/peers.md; goes on where it was stopped; 4 h, with QUICK=1 60 min
	$(BIN)/python -m tests.bench.peers $(if $(QUICK),--form quick) --page docs/peers.md

bench-amplification: install  ## Measure the bytes that 500 upserts cost with hybrid and full compactions and in Paimon, and reads between them; 40 min
	$(BIN)/python -m tests.bench.peers.amplification

faults: install  ## Test killed Spark workers and executors, late tasks, lost shuffles, stopped drivers, killed service jobs, a killed stream to S3, many writers, a kill or stop at every storage call, every power loss, 1,000 schedules and 300 of tables with all indexes, and more random cases; 60 min
	@$(call group,faults,$(SIDE_BY_SIDE) faults-processes faults-calls faults-cases faults-schedules faults-indexes)

faults-processes: install
	$(call group,faults-processes,$(PYTEST) tests/faults --ignore=$(POWER_LOSS) --ignore=tests/faults/simulation)

faults-schedules: install
	$(call group,faults-schedules,LSM_ALL_FAULTS=1 LSM_SCHEDULES=$${LSM_SCHEDULES:-1000} $(FAST) $(PYTEST) tests/faults/simulation)

faults-indexes: install
	$(call group,faults-indexes,LSM_TABLE=indexes LSM_SCHEDULES=$${LSM_SCHEDULES:-300} $(FAST) $(PYTEST) tests/faults/simulation)

faults-calls: install
	$(call group,faults-calls,LSM_ALL_FAULTS=1 $(FAST) $(PYTEST) $(SAMPLED_CALLS) $(POWER_LOSS))

faults-cases: install
	$(call group,faults-cases,LSM_ALL_FAULTS=1 $(FAST) $(PYTEST) $(SAMPLED_CASES))

conformance: install  ## Let Hudi 1.2 on Spark 3.5 and hudi-rs read and write the tables; sets them up first
	$(call group,conformance,$(BIN)/python -m tests.conformance.environment && $(PYTEST) tests/conformance)

matrix: install  ## Test Spark and Kafka on PySpark 3.5 to 4.3 and Python 3.11 to 3.13; MATRIX="3.5-py311 4.0-py312", MATRIX_PYTHONS; 60 min
	$(call group,matrix,$(BIN)/python -m tests.matrix)

matrix-speed: install  ## Compare the rate of the sink on PySpark 3.5 and 4.2, batch by batch in turns; 3 min
	$(BIN)/python -m tests.matrix.speed

test-size: install  ## Write 20 M rows as one batch under a memory limit; SIZE_ROWS, SIZE_BUDGET, SIZE_FOLDER; 3 min
	$(call group,test-size,$(BIN)/python -m tests.size)

format: install  ## Rewrite the code in the project's style
	$(BIN)/ruff check --fix --quiet --config conf/ruff.toml .
	$(BIN)/ruff format --quiet --config conf/ruff.toml .

docs: install  ## Generate docs/configuration.md from the options in config.py
	$(BIN)/lsm options > docs/configuration.md

constraints: install  ## Pin the versions that are installed in .venv
	(head -1 conf/constraints.txt; $(BIN)/python -m pip freeze --exclude-editable) > conf/constraints.new
	mv conf/constraints.new conf/constraints.txt

clean:  ## Delete .venv, caches and build
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
