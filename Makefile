# Two commands are enough: `make run` does the main job on this host, `make test` runs the tests.
# Both set up a private virtual environment in .venv first, and reuse it afterwards.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
VECTORS ?= tests/parity/vectors

.PHONY: help run test check bench e2e parity proto format clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(STAMP): pyproject.toml tools/setup
	@PYTHON="$(PYTHON)" tools/setup $(VENV)
	@touch $@

run: $(STAMP) ## set up, then pin real processes on this host until Ctrl-C
	@tools/demo

test: $(STAMP) ## set up, then run the tests
	@echo "pytest: unit, property and parity tests, doctests"
	@$(BIN)/pytest -q -n auto -m "not slow"

check: $(STAMP) ## formatting, lint, types, import contracts, doctests
	@echo "ruff format --check" && $(BIN)/ruff format --check .
	@echo "ruff check" && $(BIN)/ruff check .
	@echo "mypy --strict" && $(BIN)/mypy
	@echo "lint-imports" && $(BIN)/lint-imports
	@echo "pytest: doctests" && $(BIN)/pytest -q src README.md

parity: $(STAMP) ## replay recorded kubelet behaviour: make parity VECTORS=DIR
	@$(BIN)/python -m tests.parity.replay $(VECTORS)

proto: $(STAMP) ## make the modules of src/pinfold/proto anew
	@$(BIN)/python tools/proto

format: $(STAMP) ## let ruff format and fix what it can
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(STAMP) ## print all figures
	@$(BIN)/python -m benchmarks

e2e: $(STAMP) ## the slow suites (none yet is no error)
	@$(BIN)/pytest -q -m slow tests || [ $$? = 5 ]

clean: ## remove the virtual environment and all caches
	rm -rf $(VENV) .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
