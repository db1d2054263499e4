# One command for each task. `make` alone lists them.

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
help: ## List the commands
	@awk -f scripts/help.awk $(firstword $(MAKEFILE_LIST))

setup: ## Create .venv from requirements.lock (every other command does this first)
	@scripts/setup.sh

run: setup ## Run the demo: Spark, SQL and Python write one table, a writer is killed, every row is checked
	@scripts/java.sh --notice
	@.venv/bin/tidelock demo $(ARGS)

test: setup ## Install the servers tests need, then run all tests (ARGS="-k lease" narrows them)
	@scripts/java.sh --notice
	@$(PYTHON_VENV) -m testkit.servers
	@$(PYTEST) -q -n $(WORKERS) --dist loadgroup $(ARGS)

check: lint types imports tidy ## Run ruff, mypy, import-linter and the tidy tests

docs: setup ## Regenerate the generated pages of docs/
	@$(PYTHON_VENV) -m scripts.generate_docs $(ARGS)

format: setup ## Format the code and apply ruff's safe fixes
	@$(PYTHON_VENV) -m ruff format
	@$(PYTHON_VENV) -m ruff check --fix

##@ Parts of check
lint: setup ## Run ruff: rules and format
	@$(PYTHON_VENV) -m ruff check
	@$(PYTHON_VENV) -m ruff format --check

types: setup ## Run mypy in strict mode
	@$(PYTHON_VENV) -m mypy

imports: setup ## Run import-linter: which folder may import which
	@.venv/bin/lint-imports --cache-dir $(CACHE)/import_linter

tidy: setup ## Run the tests that read the source
	@$(PYTEST) -q tests/tidy

##@ Measure
bench: setup ## Measure against raw storage and against other lock systems, side by side
	@$(PYTHON_VENV) -m benchmarks $(ARGS)

bench-peers: setup ## Load, change and read TPC-H rows next to Hudi, Delta, Iceberg, DuckLake … (ARGS="--suite goals --scale 1 --rounds 1")
	@scripts/java.sh
	@$(PYTHON_VENV) -m benchmarks.lakes --keep $(ARGS)

##@ Long runs: simulation and model checking
sim-long: setup ## Simulate 2,000,000 lock schedules
	@$(PYTHON_VENV) -m testkit.sim --schedules 2000000 $(ARGS)

explore-long: setup ## Search every interleaving of the lock machine, deeper than the tests do
	@$(PYTHON_VENV) -m testkit.explore --deep $(ARGS)

txn-sim-long: setup ## Simulate 200,000 schedules of writers on one table
	@$(PYTHON_VENV) -m testkit.txnsim --schedules 200000 $(ARGS)

txn-rows-long: setup ## Simulate 20,000 schedules of writers, services and readers on real rows and files
	@$(PYTHON_VENV) -m testkit.txnsim --rows --schedules 20000 $(ARGS)

interleavings: setup ## Interleave every operation with every other on every kind of table, and compare with an oracle (hours)
	@$(PYTHON_VENV) -m testkit.interleaving --complete --processes $(WORKERS) $(ARGS)

model-long: setup ## Check the TLA+ models in larger bounds (hours)
	@scripts/java.sh
	@for config in ghost service long; do \
	  $(PYTHON_VENV) -m testkit.tlc specs/ledger/Ledger.tla specs/ledger/$$config.cfg || exit 1; \
	done
	@$(PYTHON_VENV) -m testkit.tlc specs/lock/Lock.tla specs/lock/long.cfg

##@ Long runs: real processes
soak: setup ## Write one table for a long time, with faults and checks (ARGS="--minutes 30 --scenario chaos")
	@$(PYTHON_VENV) -m testkit.soak $(ARGS)

stress: setup ## Every operation at once on every kind of table, killed and replayed (ARGS="--minutes 60 --kind mor-bucket-nbcc --store s3")
	@$(PYTHON_VENV) -m testkit.stress --report .cache/stress.json $(ARGS)

lock-soak: setup ## Let real processes with pauses compete for one lock (ARGS="--minutes 60")
	@$(PYTHON_VENV) -m testkit.lockset $(ARGS)

zombies: setup ## Stop 100 writers before they commit, let others commit, and resume them
	@$(PYTHON_VENV) -m testkit.tablecrash zombies --rounds 100 $(ARGS)

services-chaos: setup ## Kill one of 4 writers and 8 services every second, and check the table (ARGS="--minutes 10")
	@$(PYTHON_VENV) -m testkit.servicechaos $(ARGS)

spark-writers: setup ## Let four Spark programs upsert the same keys for two minutes, and check every row
	@$(PYTHON_VENV) -m testkit.sparkwriters $(ARGS)

pipeline-fleet: setup ## Let two streamers, SQL statements and a compactor change one table for five minutes, and check every row
	@scripts/java.sh --notice
	@$(PYTHON_VENV) -m testkit.pipelinefleet $(ARGS)

mixed-fleet: setup ## Let two of Hudi's Java writers and two of ours upsert the same keys for ten minutes
	@scripts/java.sh
	@$(PYTHON_VENV) -m testkit.mixedfleet $(ARGS)

sink-chaos: setup ## Kill two streaming queries 50 times while 1,000,000 records flow, and count them
	@scripts/java.sh --notice
	@$(PYTHON_VENV) -m testkit.sinkchaos $(ARGS)

streamer-chaos: setup ## Kill a streamer 50 times while 1,000,000 records flow, from files and from Kafka (an hour)
	@scripts/java.sh
	@$(PYTHON_VENV) -m testkit.streamerchaos --source files --kills 50 $(ARGS)
	@$(PYTHON_VENV) -m testkit.streamerchaos --source kafka --kills 50 $(ARGS)

##@ Long runs: Apache Hudi
interop-spark: setup ## Let Apache Hudi on Apache Spark 3.5 read and write our tables (fetches 430 MB)
	@scripts/java.sh
	@$(PYTEST) -q -m apache_spark tests/interop $(ARGS)

##@ Upkeep
lock: ## Resolve pyproject.toml into requirements.lock (ARGS=--upgrade moves the versions)
	@scripts/lock.sh $(ARGS)

clean: ## Remove everything that can be rebuilt, .venv included
	rm -rf .venv $(CACHE) build dist .hypothesis
	find src testkit tests benchmarks scripts -name __pycache__ -type d -prune -exec rm -rf {} +
