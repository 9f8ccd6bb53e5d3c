# FMQ. `make help` lists what there is.
PYTHON ?= $(or $(shell for python in python3 python3.13 python3.12 python3.11; do \
	$$python -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $$python && break; \
	done),python3)
VENV ?= .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SPARK_STAMP := $(VENV)/.installed-spark
PACKAGES := broker/fmq broker/fmqcore broker/fmqport broker/fmqwire broker/fmqadapters broker/fmqbroker broker/fmqinspect broker/fmqclient broker/fmqdev broker/fmqcli broker/fmqsim spark/fmqspark spark/pyspark_fmq operator/fmqoperator

.DEFAULT_GOAL := help
.PHONY: help install demo test test-fast test-spark check format proto explore sim mutants mutate chaos e2e e2e-smoke overview bench bench-spark clean

help: ## list the targets
	@awk -F':.*## ' '/^[a-z0-9-]+:.*## /{printf "  %-12s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "FMQ needs Python 3.11 or later; if you have one: make PYTHON=/path/to/it ...")'
	@$(PYTHON) -m venv $(VENV) || { echo "no venv module: on Debian, apt-get install python3-venv"; exit 2; }
	@echo "installing FMQ and what it needs into $(VENV) (once; about 640 MB to download, a minute or two)"
	@$(BIN)/python -m pip uninstall --yes -qqq --disable-pip-version-check fmq  # its name before
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $(STAMP)

install: $(STAMP) ## build the virtual environment and install FMQ into it

demo: $(STAMP) ## the main job on this machine: a cluster, the flights, a killed master, a verdict
	$(BIN)/fmq demo

test: $(STAMP) ## all tests, two files at a time; make test WORKERS=0 one after the other
	$(BIN)/python -m pytest -n $(or $(WORKERS),2) --dist loadfile

test-fast: $(STAMP) ## the tests that start no process
	$(BIN)/python -m pytest -m 'not processes and not spark and not kind'

$(SPARK_STAMP): $(STAMP)
	@echo "installing what the Spark jobs need into $(VENV) (once)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev,spark]'
	@touch $(SPARK_STAMP)

test-spark: $(SPARK_STAMP) ## the tests that start Spark
	$(BIN)/python -m pytest -m spark spark operator

check: $(STAMP) ## lint, format, types, layers, sizes, ports, words, stubs, CRDs, generated pages
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy $(PACKAGES) tools bench e2e examples conftest.py
	$(BIN)/lint-imports --no-cache
	$(BIN)/python tools/check_sizes.py
	$(BIN)/python tools/check_ports.py
	$(BIN)/python tools/check_words.py
	$(BIN)/python tools/generate_proto.py --check
	$(BIN)/python -m fmqoperator.crd --check
	$(BIN)/python tools/make_settings.py --check
	$(BIN)/python tools/make_log_events.py --check
	$(BIN)/python tools/make_crds_page.py --check
	$(BIN)/python tools/make_errors.py --check

format: $(STAMP) ## let ruff put the code in shape
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

proto: $(STAMP) ## generate the stubs from proto/
	$(BIN)/python tools/generate_proto.py

explore: $(STAMP) ## every state of small ordered chains; EXPLORE='--only NAME --limit STATES'
	$(BIN)/python -m fmqcore.tests.ordered $(EXPLORE)

sim: $(STAMP) ## simulate clusters by seed; make sim SEEDS=1000 FIRST_SEED=0
	$(BIN)/python -m fmqsim --seeds $(or $(SEEDS),100) --first-seed $(or $(FIRST_SEED),0) $(SIM)

mutants: $(STAMP) ## plant mistakes, one at a time, and see each caught; MUTANTS='--only NAME --why'
	$(BIN)/python -m fmqsim.mutants $(MUTANTS)

mutate: $(STAMP) ## small mistakes by rule in pure cores and guards; MUTATE='--only NAME --again'
	$(BIN)/python -m tools.mutation $(MUTATE)

chaos: $(STAMP) ## hurt real processes in every way this machine allows; CHAOS='--only NAME --seconds N'
	$(BIN)/python -m e2e.chaos $(CHAOS)

e2e: $(STAMP) ## everything on a kind cluster with two workers: nodes, network, volumes, too; KEEP=1 leaves it
	KIND_WORKERS=$(or $(KIND_WORKERS),2) $(BIN)/python -m pytest -m kind -s e2e/kind $(E2E)

e2e-smoke: $(STAMP) ## the chart and a group on a kind cluster, with losses; KEEP=1 leaves the cluster
	$(BIN)/python -m pytest -m kind -x -s e2e/kind/test_smoke.py e2e/kind/test_upkeep.py

overview: $(STAMP) ## what Grafana would show of a cluster that loses a master, drawn: build/overview.png
	$(BIN)/python -m e2e.dashboards $(OVERVIEW)

bench: $(STAMP) ## measure speed; prints a table and writes build/bench.json
	$(BIN)/python -m bench

bench-spark: $(SPARK_STAMP) ## measure reading: scan, Spark, cores, memory; build/bench-spark.json
	$(BIN)/python -m bench.spark $(BENCH_SPARK)

clean: ## remove what was built, the environment too
	rm -rf $(VENV) build dist
