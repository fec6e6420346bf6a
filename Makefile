# Two commands are enough: `make run` does the main job on this host, `make test` runs the tests.
# Both set up a private virtual environment in .venv first, and reuse it afterwards:
# `make run` installs only pinfold and what it needs, every other target adds the development tools.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
RUN_STAMP := $(VENV)/.runs
VECTORS ?= tests/parity/vectors
EVERY ?= 1
# One more than there are CPUs: many tests wait.
WORKERS ?= $(shell expr $$(nproc) + 1)
ROUNDS ?= 100
STEPS ?= 50000
AWAY ?= 60
SECONDS ?= 10
# Compiled modules are kept even if the environment forbids it: the tests start the program many hundred times.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help run test coverage check bench e2e e2e-long cluster torture fuzz parity parity-daemon proto format dist man deb sbom release-check docs clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z0-9-]+:.*## / {printf "make %-13s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

$(RUN_STAMP): pyproject.toml tools/setup
	@PYTHON="$(PYTHON)" tools/setup $(VENV)
	@touch $@

$(STAMP): pyproject.toml tools/setup
	@PYTHON="$(PYTHON)" tools/setup $(VENV) dev
	@touch $(RUN_STAMP) $@

run: $(RUN_STAMP) ## set up, then pin real processes on this host until Ctrl-C
	@tools/demo

test: $(STAMP) ## set up, then run the tests
	@echo "pytest: unit, property and parity tests, doctests"
	@$(BIN)/pytest -q -n $(WORKERS) -m "not slow" $(if $(COVERAGE),--cov --cov-report=)
	@$(if $(COVERAGE),$(BIN)/coverage json -q -o - | $(BIN)/python tools/coverage-table $(if $(SHOWN),|| true))

coverage: ## run the tests and print how much of each package they cover; fails below a floor
	@$(MAKE) --no-print-directory test COVERAGE=1

check: $(STAMP) ## formatting, lint, types, import contracts, fragments, doctests
	@echo "ruff format --check" && $(BIN)/ruff format --check .
	@echo "ruff check" && $(BIN)/ruff check .
	@echo "mypy --strict" && $(BIN)/mypy
	@echo "lint-imports" && $(BIN)/lint-imports
	@echo "changelog --check" && $(BIN)/python tools/changelog --check
	@echo "pytest: doctests" && $(BIN)/pytest -q src README.md

parity: $(STAMP) ## replay recorded kubelet behaviour: make parity VECTORS=DIR
	@$(BIN)/python -m tests.parity.replay $(VECTORS)

parity-daemon: $(STAMP) ## the same through the daemon over NRI: make parity-daemon VECTORS=DIR EVERY=1
	@$(BIN)/python -m tests.parity.daemon $(VECTORS) $(EVERY)

proto: $(STAMP) ## make the modules of src/pinfold/proto anew
	@$(BIN)/python tools/proto

format: $(STAMP) ## let ruff format and fix what it can
	@$(BIN)/ruff format . && $(BIN)/ruff check --fix .

bench: $(STAMP) ## measure, and write docs/reference/benchmarks.md with its plots: 15 minutes on a quiet machine
	@$(BIN)/python -m benchmarks._page

e2e: $(STAMP) ## the slow tests: containerd, guests, a browser; on Debian as root everything is fetched
	@tools/packages
	@$(BIN)/pytest -q -rs -m "slow and not long" tests

e2e-long: $(STAMP) ## the longer versions of the slow tests
	@tools/packages
	@$(BIN)/pytest -q -rs -m long tests
	@HYPOTHESIS_PROFILE=thorough $(BIN)/pytest -q -n auto tests/property

cluster: $(STAMP) ## pinfold on the node of a real Kubernetes cluster, which is built first: 10 to 30 minutes
	@$(BIN)/pytest -q -s -rs tests/e2e/cluster

torture: $(STAMP) ## kills, faults, power failures, a long life of a Manager: make torture ROUNDS=1000 STEPS=1000000
	@TORTURE_ROUNDS=$(ROUNDS) TORTURE_STEPS=$(STEPS) TORTURE_AWAY=$(AWAY) $(BIN)/pytest -q -s tests/e2e/test_torture.py \
		tests/property/test_manager_life.py tests/property/test_dynamic_life.py tests/torture

dist: $(STAMP) ## build the wheel and the sdist into dist/
	@$(BIN)/python -m build --no-isolation --outdir dist . >/dev/null && ls -1 dist

man: $(STAMP) ## write the manual pages into build/man
	@$(BIN)/python tools/manpages build/man

deb: $(STAMP) ## build the Debian package into dist/
	@deploy/debian/build dist

sbom: $(STAMP) ## print the bill of materials, CycloneDX JSON
	@$(BIN)/python tools/sbom

release-check: $(STAMP) ## check that a release can be made: version, changelog, two builds alike, wheel, bill of materials
	@tools/release-check

fuzz: $(STAMP) ## every parser, guided by coverage: make fuzz SECONDS=60 (for each); installs atheris
	@$(BIN)/pip install -q atheris
	@for name in $$($(BIN)/python -m tests.fuzz.parsers --list); do \
		echo "fuzz $$name" && $(BIN)/python -m tests.fuzz.parsers --atheris $$name -- \
			-max_total_time=$(SECONDS) -max_len=4096 -verbosity=0 || exit 1; done
	@echo "fuzz NRI" && $(BIN)/python -m tests.fuzz.nri --atheris -- -max_total_time=$(SECONDS) -max_len=4096 -verbosity=0
	@$(BIN)/python -m benchmarks parsers

$(VENV)/.docs: $(STAMP)
	@PYTHON="$(PYTHON)" tools/setup $(VENV) docs
	@touch $@

docs: $(VENV)/.docs ## build the documentation into build/site; fails at a broken link or a page that is not current
	@$(BIN)/python tools/reference --check && $(BIN)/python tools/pictures --check
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --quiet --strict && echo "docs: $$(find build/site -name '*.html' | wc -l) pages in build/site"

clean: ## remove the virtual environment and all caches
	rm -rf $(VENV) build dist .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
