# The whole vocabulary of work: setup demo test lint fmt bench faults up
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALL = $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

.PHONY: setup demo test lint fmt bench faults up
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

demo: $(VENV)/.runtime
	@$(BIN)/dtgol demo $(if $(KEEP),--keep) $(DEMO)

up:
	@docker compose version >/dev/null 2>&1 || { \
	  echo "make up needs Docker with its compose plugin; make demo needs neither" >&2; exit 1; }
	docker compose up --build --detach
	@echo "Grafana http://127.0.0.1:$${DTGOL_GRAFANA_PORT:-3000}, Prometheus http://127.0.0.1:$${DTGOL_PROMETHEUS_PORT:-9090}," \
	  "Kafka 127.0.0.1:$${DTGOL_KAFKA_PORT:-29092}; docker compose down -v removes everything"

test: $(VENV)/.test
	$(BIN)/pytest

lint: $(VENV)/.test
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

fmt: $(VENV)/.test
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

bench: $(VENV)/.bench
	$(BIN)/python -m benchmarks.step
	$(BIN)/python -m benchmarks.throughput

faults: $(VENV)/.test # the long run; make faults SEED=7 replays one seed, FAULTS='-k zombie' takes some
	DTGOL_REQUIRE_BROKER=1 $(BIN)/pytest tests/faults tests/fuzz --long $(if $(SEED),--fault-seed=$(SEED)) $(FAULTS)
