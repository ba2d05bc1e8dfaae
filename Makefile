# The first of these that is Python 3.11 or later; the pins of constraints.txt are tested with 3.11.
NEW_ENOUGH := import sys; sys.exit(sys.version_info < (3, 11))
PYTHON ?= $(shell for each in python3.11 python3.12 python3.13 python3; do \
	$$each -c '$(NEW_ENOUGH)' 2>/dev/null && echo $$each && break; done)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TYPES := .cache/types

# Two workers share two cores: more than one torch thread each would only make them wait for one another.
# loadfile keeps a file in one worker, so that its fixtures are built once.
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n 2 --dist loadfile

.DEFAULT_GOAL := help
.PHONY: help setup test test-slow test-all lint types contracts tables docs demo clean

help:  ## Show this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-9s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

setup: $(STAMP)  ## Create .venv and install the project with its development tools

$(STAMP): pyproject.toml constraints.txt
	@test -n "$(PYTHON)" || { echo "there is no Python 3.11 or later; install one, or give PYTHON=..."; exit 2; }
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --disable-pip-version-check --constraint constraints.txt --editable ".[dev]"
	@touch $@

test: $(STAMP)  ## Run the tests, without those marked slow, ray or browser
	$(PYTEST) -m "not slow and not ray and not browser"

test-slow: $(STAMP)  ## Run the others: those marked slow, ray or browser
	$(PYTEST) -m "slow or ray or browser"

test-all: test test-slow  ## Run every test

lint: $(STAMP)  ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Neither mypy nor import-linter can follow the mapping of agents/ and envs/ to rims_rl.*, so show them a tree of links that
# has that shape.
.PHONY: links
links:
	@rm -rf $(TYPES) && mkdir -p $(TYPES)/rims_rl
	@cd $(TYPES)/rims_rl && ln -s ../../../rims_rl/* ../../../agents ../../../envs .

contracts: $(STAMP) links  ## Check which way imports point
	cd $(TYPES) && PYTHONPATH=. ../../$(BIN)/lint-imports --config ../../.importlinter --no-cache

types: $(STAMP) links  ## Check types
	cd $(TYPES) && ../../$(BIN)/mypy --config-file ../../pyproject.toml --cache-dir ../mypy --package rims_rl

tables: $(STAMP)  ## Write the tables of the documentation anew, from docs/results
	$(BIN)/python docs/tables.py

docs: $(STAMP)  ## Build the site, docs/_build/index.html, offline
	$(BIN)/sphinx-build --fail-on-warning --keep-going --quiet -b html docs docs/_build
	@echo "the site: docs/_build/index.html"

demo: $(STAMP)  ## Train an agent on DemonAttack for a few minutes, evaluate it and record a video
	$(BIN)/rims-rl train --env DemonAttack --n-timesteps 25600 --eval-freq 0
	@run=$$(ls -td logs/ppo/DemonAttack_*/ | head -n 1 | sed 's|/$$||') && \
	$(BIN)/rims-rl evaluate $$run --episodes 16 && \
	$(BIN)/rims-rl enjoy $$run && \
	echo && echo "the run:      $$run" && \
	echo "curves:       $(BIN)/tensorboard --logdir $$run" && \
	echo "the video:    $$(ls -t $$run/videos/* | head -n 1)" && \
	echo "train longer: $(BIN)/rims-rl train --resume $$run -n 1000000" && \
	echo "from now on:  source $(BIN)/activate, and rims-rl is found"

clean:  ## Remove the environment, caches and build products
	rm -rf $(VENV) .cache build dist docs/_build *.egg-info .pytest_cache .ruff_cache .mypy_cache .hypothesis
	find rims_rl agents envs tests examples -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true
