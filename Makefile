# One command each for what people do here. `make` alone prints this map.

# Commands go through the virtual environment's own interpreter, never through a shell that was
# "activated" for something else.
PYTHON_VENV := .venv/bin/python
PYTEST      := $(PYTHON_VENV) -m pytest
CACHE       := .cache

# Two workers are the least that overlaps waiting with work; more than the cores only adds noise
# to tests that watch deadlines.
WORKERS ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 2); [ "$$n" -gt 2 ] && echo "$$n" || echo 2)
ARGS    ?=

# What a person's shell exports for other projects must not reach this one.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP PIP_USER PIP_TARGET PIP_PREFIX VIRTUAL_ENV
export PYTHONNOUSERSITE := 1

.DEFAULT_GOAL := help
.PHONY: help setup run test check lint types imports tidy bench bench-peers soak docs \
        interop-spark sim-long txn-sim-long txn-rows-long interleavings stress lock-soak zombies services-chaos spark-writers \
        streamer-chaos sink-chaos pipeline-fleet mixed-fleet explore-long model-long format lock clean

##@ Every day
help: ## Show this map
	@awk -f scripts/help.awk $(firstword $(MAKEFILE_LIST))

setup: ## Make .venv from requirements.lock (every other target does this first)
	@scripts/setup.sh

run: setup ## Run the demo: Spark, SQL and Python write one table, a writer is killed, every row is checked
	@scripts/java.sh --notice
	@.venv/bin/tidelock demo $(ARGS)

test: setup ## Install the servers tests need, then run all tests (ARGS="-k lease" narrows them)
	@scripts/java.sh --notice
	@$(PYTHON_VENV) -m tidelock.testing.servers
	@$(PYTEST) -q -n $(WORKERS) --dist loadgroup $(ARGS)

check: lint types imports tidy ## Run ruff, mypy, import-linter and the tidy tests

bench: setup ## Measure against raw storage and against other lock systems, side by side
	@$(PYTHON_VENV) -m benchmarks $(ARGS)

bench-peers: setup ## Load, change and read TPC-H rows beside Hudi, Delta, Iceberg, DuckLake … (ARGS="--course goals --scale 1 --rounds 1")
	@scripts/java.sh
	@$(PYTHON_VENV) -m benchmarks.lakes --keep $(ARGS)

soak: setup ## Write one table for long, with faults and checks (ARGS="--minutes 30 --scenario chaos")
	@.venv/bin/tidelock soak $(ARGS)

docs: setup ## Regenerate the generated pages of docs/
	@$(PYTHON_VENV) -m tidelock.ops.docs $(ARGS)

##@ Long runs
interop-spark: setup ## Let Apache Hudi on Apache Spark 3.5 read and write our tables (fetches 430 MB)
	@scripts/java.sh
	@$(PYTEST) -q -m apache_spark tests/interop $(ARGS)

sim-long: setup ## Simulate 2,000,000 lock schedules
	@$(PYTHON_VENV) -m tidelock.testing.sim --schedules 2000000 $(ARGS)

txn-sim-long: setup ## Simulate 200,000 schedules of writers on one table
	@$(PYTHON_VENV) -m tidelock.testing.txnsim --schedules 200000 $(ARGS)

txn-rows-long: setup ## Simulate 20,000 schedules of writers, services and readers on real rows and files
	@$(PYTHON_VENV) -m tidelock.testing.txnsim --rows --schedules 20000 $(ARGS)

zombies: setup ## Stop 100 writers before they commit, overtake them, and wake them
	@$(PYTHON_VENV) -m tidelock.testing.tablecrash zombies --rounds 100 $(ARGS)

services-chaos: setup ## Kill one of 4 writers and 8 services every second, and check the table (ARGS="--minutes 10")
	@$(PYTHON_VENV) -m tidelock.testing.servicechaos $(ARGS)

spark-writers: setup ## Let four Spark programs upsert the same keys for two minutes, and check every row
	@$(PYTHON_VENV) -m tidelock.testing.sparkwriters $(ARGS)

stress: setup ## Every operation at once on every kind of table, killed and replayed (ARGS="--minutes 60 --kind mor-bucket-nbcc --store s3")
	@$(PYTHON_VENV) -m tidelock.testing.stress --report .cache/stress.json $(ARGS)

sink-chaos: setup ## Kill two streaming queries 50 times while 1,000,000 records flow, and count them
	@scripts/java.sh --notice
	@$(PYTHON_VENV) -m tidelock.testing.sinkchaos $(ARGS)

lock-soak: setup ## Fight for one lock with real processes and pauses (ARGS="--minutes 60")
	@$(PYTHON_VENV) -m tidelock.testing.lockset $(ARGS)

mixed-fleet: setup ## Let two Java writers of Hudi's and two of ours upsert the same keys for ten minutes
	@scripts/java.sh
	@$(PYTHON_VENV) -m tidelock.testing.mixedfleet $(ARGS)

streamer-chaos: setup ## Kill a streamer 50 times while 1,000,000 records flow, from files and from Kafka (an hour)
	@scripts/java.sh
	@$(PYTHON_VENV) -m tidelock.testing.streamerchaos --source files --kills 50 $(ARGS)
	@$(PYTHON_VENV) -m tidelock.testing.streamerchaos --source kafka --kills 50 $(ARGS)

pipeline-fleet: setup ## Let two streamers, SQL statements and a compactor change one table for five minutes, and check every row
	@scripts/java.sh --notice
	@$(PYTHON_VENV) -m tidelock.testing.pipelinefleet $(ARGS)

explore-long: setup ## Search every interleaving of the lock machine, deeper than the tests do
	@$(PYTHON_VENV) -m tidelock.testing.explore --deep $(ARGS)

interleavings: setup ## Place every operation inside every other on every kind of table, and compare with an oracle (hours)
	@$(PYTHON_VENV) -m tidelock.testing.interleaving --complete --processes $(WORKERS) $(ARGS)

model-long: setup ## Check the TLA+ models in larger bounds (hours)
	@scripts/java.sh
	@for config in ghost service long; do \
	  $(PYTHON_VENV) -m tidelock.testing.tlc specs/ledger/Ledger.tla specs/ledger/$$config.cfg || exit 1; \
	done
	@$(PYTHON_VENV) -m tidelock.testing.tlc specs/lock/Lock.tla specs/lock/long.cfg

##@ Upkeep
format: setup ## Format the code and apply ruff's safe fixes
	@$(PYTHON_VENV) -m ruff format
	@$(PYTHON_VENV) -m ruff check --fix

lint: setup ## Part of check: ruff, rules and format
	@$(PYTHON_VENV) -m ruff check
	@$(PYTHON_VENV) -m ruff format --check

types: setup ## Part of check: mypy, strict
	@$(PYTHON_VENV) -m mypy

imports: setup ## Part of check: which folder may import which
	@.venv/bin/lint-imports --cache-dir $(CACHE)/import_linter

tidy: setup ## Part of check: the tests that read the source
	@$(PYTEST) -q tests/tidy

lock: ## Resolve pyproject.toml into requirements.lock (ARGS=--upgrade moves the versions)
	@scripts/lock.sh $(ARGS)

clean: ## Remove everything that can be made again, .venv included
	rm -rf .venv $(CACHE) build dist .hypothesis
	find src tests benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} +
