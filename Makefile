# The two commands of the README: `make demo` and `make test`. Each creates what it needs.
SHELL := /bin/bash
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
DEBIAN_PACKAGES := prometheus prometheus-alertmanager victoria-metrics

.PHONY: help install packages demo test check coverage fix clean

help:
	@echo "make demo    replay real traces, tune, and write a report (no cluster needed)"
	@echo "make test    everything that has to pass: style, types, layers, all tests"
	@echo "make check   only style, types and layers"
	@echo "make coverage  how much of the deciding code and the kernels the tests run"
	@echo "make fix     format and mend what can be mended by itself"

# The stamp depends on what is installed, so that a changed pin reinstalls.
$(VENV)/.installed: pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed; run: make PYTHON=python3.11 ...")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --constraint constraints.txt torch
	$(BIN)/pip install --quiet --constraint constraints.txt --editable '.[dev]'
	@touch $@

install: $(VENV)/.installed

packages:
	@bash scripts/debian-packages $(DEBIAN_PACKAGES)

demo: install
	@bash scripts/debian-packages prometheus
	$(BIN)/clocktuner demo

check: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

test: packages check
	$(BIN)/pytest

# Compiled code counts as unrun, so the kernels run as plain Python, on the tiny inputs of their tests.
coverage: install
	NUMBA_DISABLE_JIT=1 $(BIN)/coverage run --source=tuner/values,tuner/twin,tuner/reference,tuner/judge,tuner/verify \
		-m pytest tests/values tests/twin tests/reference tests/judge tests/verify
	$(BIN)/coverage report

fix: install
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache clocktuner-out
