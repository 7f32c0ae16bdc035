# Set-up and the daily commands. Needs make and Python 3.11; set-up also a network.

.DEFAULT_GOAL := help
.PHONY: help setup setup-s3 setup-gs setup-abfs demo up screenshots test test-all lint bench bench-peers torture-replay equal-tables keep-warehouse release-check clean
MAKEFLAGS += --no-print-directory

PYTHON := $(shell for python in python3.11 python3 python; do \
  "$$python" -c 'import sys; sys.exit(sys.version_info[:2] != (3, 11))' 2>/dev/null && { command -v "$$python"; break; }; done)

help: ## show this list
	@sed -n 's/^\([a-z0-9-]*\):[^#]*## \(.*\)/make \1	\2/p' Makefile

setup: ## install the Python packages into .venv and the JVM jars into .jars; done steps are skipped
	@test -n "$(PYTHON)" || { echo "Afterlog runs on Python 3.11; install it, so that python3.11 is on the PATH, then run make again." >&2; exit 3; }
	@"$(PYTHON)" -m local.install $(SETUP)

setup-s3: SETUP := --s3
setup-s3: setup ## the same, and fetch what a warehouse on S3 needs

setup-gs: SETUP := --gs
setup-gs: setup ## the same for Google Cloud Storage

setup-abfs: SETUP := --abfs
setup-abfs: setup ## the same for Azure

demo: SETUP := --for-demo
demo: setup ## run all DAGs with Airflow over captures, a week of a shop and a live broker, twice; then replay
	@.venv/bin/python -m local.demo

up: setup ## start Airflow with its web interface; Ctrl-C ends it
	@.venv/bin/python -m local.airflow_home up

screenshots: setup ## take the pictures of README from the demo's pages; needs Chromium
	@.venv/bin/python -m local.screenshots

test: SETUP := --s3
test: setup ## run the tests, two files at a time; ARGS="-k headers" chooses some
	@.venv/bin/python -m pytest --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

test-all: SETUP := --s3
test-all: setup ## run the tests that take long, too: as many crash points, orders of arrival and DAG runs again
	@.venv/bin/python -m pytest -m "thorough or not thorough" --numprocesses 2 --dist loadfile --no-loadscope-reorder $(ARGS)

lint: setup ## check style, format, types and the direction of imports
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy
	@.venv/bin/lint-imports --no-cache

bench: setup ## measure what runs cost, on few and many rows
	@.venv/bin/python -m bench.run $(ARGS)

bench-peers: setup ## measure against DuckDB, Spark by hand and DQX; ARGS="--records 1000000" takes more dead letters
	@.venv/bin/python -m bench.run_peers $(ARGS)

torture-replay: setup ## kill runs of replays a thousand times and count what is lost or twice; ARGS="--kills 100"
	@.venv/bin/python -m bench.torture_replay $(ARGS)

equal-tables: setup ## compare the tables of two versions; ARGS="--base REV" names the one before
	@.venv/bin/python -m bench.equal_tables $(ARGS)

keep-warehouse: setup ## pack a warehouse of this version into tests/data/warehouses, for the tests of later ones
	@.venv/bin/python -m local.kept_warehouse

release-check: setup ## say what is left to do before a release of the version in pyproject.toml
	@.venv/bin/python -m local.release_check

clean: ## remove all that set-up, demo and runs made: packages, jars, caches, Airflow, warehouse, landed files
	@rm -rf .venv .jars .cache .airflow warehouse landing reports spark-warehouse metastore_db derby.log
	@rm -rf .mypy_cache .pytest_cache .ruff_cache .hypothesis
	@find pipelines expectations dags tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
