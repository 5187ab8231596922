# Two commands for a newcomer: `make demo` and `make test`. Both need only make, Python 3.11+ and its venv module.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
export PIP_DISABLE_PIP_VERSION_CHECK := 1
export PIP_ROOT_USER_ACTION := ignore
# By the environment, so that the build backend is held to them too, in pips old and new.
export PIP_CONSTRAINT := $(CURDIR)/constraints.txt
export PIP_BUILD_CONSTRAINT := $(PIP_CONSTRAINT)
PIP_INSTALL := $(BIN)/python -m pip install --quiet

.PHONY: help install core demo test kernels docs api results format lint types imports pytest clean

help:
	@echo "make demo     install the core and watch it learn from built-in pictures"
	@echo "make test     install everything and run every check"
	@echo "make kernels  the GPU's kernels against float64, interpreted on a CPU (Linux; 300 MB of Triton)"
	@echo "make install  the package with its development tools, in $(VENV)"
	@echo "make docs     build the documentation's site, in site/"
	@echo "make format   rewrite the code in the house format"
	@echo "make clean    remove $(VENV) and caches"

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "wessl needs Python 3.11 or newer; found $$($(PYTHON) --version 2>&1). Try: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -m venv $(VENV) || \
	  { rm -rf $(VENV); echo "Python's venv module is missing. On Debian: apt-get install python3-venv"; exit 1; }

# A stamp is newer than what it was installed from, so the second call does nothing.
$(VENV)/.core: $(BIN)/python pyproject.toml constraints.txt
	@echo "Installing wessl into $(VENV) (torch is large: some minutes) ..."
	@$(PIP_INSTALL) --editable .
	@touch $@

$(VENV)/.dev: $(VENV)/.core
	@echo "Installing what the tests and every export need ..."
	@$(PIP_INSTALL) --editable '.[dev]'
	@touch $@

$(VENV)/.docs: $(VENV)/.core
	@$(PIP_INSTALL) --editable '.[docs]'
	@touch $@

core: $(VENV)/.core
install: $(VENV)/.dev

demo: core
	$(BIN)/wessl demo

test: lint types imports pytest

lint: install
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

types: install
	$(BIN)/mypy

imports: install
	$(BIN)/python -m pytest -q tests/test_imports.py

# A file goes whole to one process, for its fixtures train runs. The longest file takes a sixth of
# the time of all, so that more than six processes would only take memory.
pytest: install
	$(BIN)/python -m pytest -n auto --maxprocesses 6 --dist loadfile --ignore=tests/test_imports.py

# Triton lies apart: its 1 GB is of no use to a CPU but for this.
KERNEL_TESTS := tests/encoder/test_kernels.py tests/encoder/test_packed.py tests/data/test_view_kernels.py
kernels: install $(VENV)/triton/triton/__init__.py
	PYTHONPATH=$(VENV)/triton TRITON_INTERPRET=1 \
	  $(BIN)/python -m pytest -n auto --maxprocesses 6 $(KERNEL_TESTS)

$(VENV)/triton/triton/__init__.py: | $(BIN)/python
	@$(PIP_INSTALL) --no-deps --target $(VENV)/triton triton==3.9.0

# Strict: a link that leads nowhere fails, and nothing is written then.
docs: $(VENV)/.docs
	$(BIN)/python -m docs.builder site

# docs/api.md, from the signatures and docstrings of the public names.
api: core
	@$(BIN)/python -m docs.builder.api > docs/api.md.new && mv docs/api.md.new docs/api.md

# The tables and figures of README.md and docs/results.md, from docs/results/.
results: core
	@$(BIN)/python -m docs.builder.results

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) site .mypy_cache .pytest_cache .ruff_cache .hypothesis
