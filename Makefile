# All commands: setup demo test test-browser test-kafka test-faults test-all lint fmt docs speed up
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

JOBS ?= 2
KAFKA_JOBS ?= 4
QUICK = tests/unit tests/conformance tests/properties tests/golden tests/simulation tests/fuzz tests/embedded tests/examples --doctest-modules --doctest-ignore-import-errors dtgol_core topics pipeline

.PHONY: setup demo test test-browser test-kafka test-faults test-all lint fmt docs speed up
.DELETE_ON_ERROR:

setup: $(VENV)/.test

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  echo "dtgol needs Python 3.11 or newer as $(PYTHON): install it, or name one with make PYTHON=…" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  echo "$(PYTHON) has no venv module: install it (Debian: apt-get install python3-venv)" >&2; exit 1; }
	@echo "making $(VENV)"
	@$(PYTHON) -m venv $(VENV)

$(VENV)/.runtime: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing dtgol (once per change of pyproject.toml)"
	@$(INSTALL) -e .
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing dtgol with its test tools (once per change of pyproject.toml)"
	@$(INSTALL) -e '.[test]'
	@touch $@ $(VENV)/.runtime

$(VENV)/.bench: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing dtgol with its benchmark peers (once per change of pyproject.toml)"
	@$(INSTALL) -e '.[test,bench]'
	@touch $@ $(VENV)/.test $(VENV)/.runtime

$(VENV)/.docs: pyproject.toml constraints.txt | $(BIN)/python
	@echo "installing what builds the site of the documentation (once per change of pyproject.toml)"
	@$(INSTALL) -e '.[docs]'
	@touch $@ $(VENV)/.runtime

demo: $(VENV)/.runtime
	@$(BIN)/dtgol demo $(if $(KEEP),--keep) $(DEMO)

up:
	@docker compose version >/dev/null 2>&1 || { \
	  echo "make up needs Docker with its compose plugin; make demo needs neither" >&2; exit 1; }
	docker compose up --build --detach
	@echo "Grafana http://127.0.0.1:$${DTGOL_GRAFANA_PORT:-3000}, Prometheus http://127.0.0.1:$${DTGOL_PROMETHEUS_PORT:-9090}," \
	  "Kafka 127.0.0.1:$${DTGOL_KAFKA_PORT:-29092}; docker compose down -v removes everything"

# Lanes, quickest first; CONTRIBUTING.md says what each runs. PYTEST='-k name' takes some.
test: $(VENV)/.test
	$(BIN)/pytest -n $(JOBS) $(QUICK) $(PYTEST)

test-browser: $(VENV)/.test # SCREENSHOTS=1 writes those of the README
	$(BIN)/pytest tests/browser $(if $(SCREENSHOTS),--screenshots) $(PYTEST)

test-kafka: $(VENV)/.test
	DTGOL_REQUIRE_BROKER=1 $(BIN)/pytest -n $(KAFKA_JOBS) tests/broker $(PYTEST)

test-faults: $(VENV)/.test # SEED=7 replays one seed, LONG=1 more rounds and seeds
	DTGOL_REQUIRE_BROKER=1 $(BIN)/pytest -n $(JOBS) --dist loadfile tests/faults $(if $(LONG),--long) \
	  $(if $(SEED),--fault-seed=$(SEED)) $(PYTEST)

test-all: test test-browser test-kafka test-faults

lint: $(VENV)/.test
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(VENV)/.test
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

docs: $(VENV)/.docs # the site with the API reference, into build/site; a dead link or anchor fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict  # with --quiet it counts no warnings

# Quix Streams, a peer of the benchmark, needs an older confluent-kafka than ours: an environment of its own.
$(VENV)/quix/.made: | $(BIN)/python
	@$(PYTHON) -m venv $(VENV)/quix
	@$(VENV)/quix/bin/python -m pip install --quiet --disable-pip-version-check 'quixstreams>=3.28,<4'
	@touch $@

# How fast; dtgol compare is how accurate. REPORT=docs/speed.md writes the tables, BEFORE=CHECKOUT compares with another one.
speed: $(VENV)/.bench $(VENV)/quix/.made
	$(BIN)/python -m benchmarks.step $(if $(BEFORE),--before $(BEFORE)) $(if $(REPORT),--report $(REPORT))
	$(BIN)/python -m benchmarks.throughput $(if $(BEFORE),--before $(BEFORE)) $(if $(REPORT),--report $(REPORT))
	$(BIN)/python -m benchmarks.scale $(if $(REPORT),--report $(REPORT))
