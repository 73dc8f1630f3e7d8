# Everything is set up in .venv beside this file, once: `make demo` and `make test` need nothing before them.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.ONESHELL:
.DEFAULT_GOAL := help
.PHONY: help demo test lint format setup clean

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
ARGS ?=
# The interpreter gains nothing from many threads, and the judge's processes share the cores.
export OMP_NUM_THREADS ?= 1
# The tests start hundreds of processes: none of them should compile the sources again.
unexport PYTHONDONTWRITEBYTECODE

help: ## Show this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "  make %-8s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: $(STAMP) ## Judge sample kernels, play a benchmark, then train a small policy (about ten minutes in all)
	@$(BIN)/dojo demo $(ARGS)
	$(BIN)/dojo learn --fresh --out runs-out/learn

test: $(STAMP) ## Run all tests that this machine can run (ARGS="-k panel" for some)
	@at_once=3 # on two cores: a test waits for other processes a third of its time, and four take longer
	if nvidia-smi -L >/dev/null 2>&1; then at_once=0; fi # what is timed on a GPU has to have it alone
	$(BIN)/python -m pytest --numprocesses $$at_once --dist loadfile --no-loadscope-reorder $(ARGS)

lint: $(STAMP) ## Check style and types
	@$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright

format: $(STAMP) ## Format the code and mend what can be mended
	@$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

setup: $(STAMP) ## Only set up the virtual environment

clean: ## Remove the virtual environment and all caches
	@rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis dist build
	find src tests examples -name __pycache__ -type d -prune -exec rm -rf {} +

# With a GPU, torch is the one that the system's Python has if it was built for CUDA, else the registry's default.
# Without one it is what constraints-cpu.txt names: a plain torch would bring gigabytes of CUDA and another Triton.
# uv is faster than pip but does not read pip's settings, so a machine where pip has been given any keeps pip.
$(STAMP): pyproject.toml constraints-cpu.txt
	@if [ -z "$(PYTHON)" ]; then echo "Python 3.11 or newer is needed" >&2; exit 1; fi
	$(PYTHON) -c 'import sys; sys.exit("Python 3.11 or newer is needed" if sys.version_info < (3, 11) else 0)'
	extras=dev constraints="--constraint constraints-cpu.txt" system=
	if nvidia-smi -L >/dev/null 2>&1; then
	    extras=dev,cuda constraints=
	    if $(PYTHON) -c 'import sys, torch; sys.exit(torch.version.cuda is None)' >/dev/null 2>&1; then
	        system=--system-site-packages
	    fi
	fi
	if [ -x $(BIN)/python ]; then
	    echo "using $(VENV)"
	elif $(PYTHON) -c 'import ensurepip' >/dev/null 2>&1; then
	    $(PYTHON) -m venv $$system $(VENV)
	elif command -v uv >/dev/null; then
	    uv venv --quiet --seed --python $(PYTHON) $$system $(VENV)
	else
	    echo "Python's venv module is not complete here: install python3-venv (Debian) or uv, then make again" >&2
	    exit 1
	fi
	installer="$(BIN)/python -m pip --disable-pip-version-check"
	if command -v uv >/dev/null && [ -z "$$($(BIN)/python -m pip config list)" ]; then
	    installer="uv pip"
	    export VIRTUAL_ENV="$(CURDIR)/$(VENV)"
	fi
	echo "installing kerneldojo[$$extras] $$constraints into $(VENV) (a few minutes the first time)"
	if ! $$installer install -qq $$constraints --editable ".[$$extras]"; then
	    echo "Could not install. Without a GPU your package index has to offer the CPU build of torch that" >&2
	    echo "constraints-cpu.txt names: add PyTorch's own CPU index (PIP_EXTRA_INDEX_URL, or UV_INDEX with uv)." >&2
	    exit 1
	fi
	$(BIN)/python -m compileall -q src # what only fork servers import they would compile each time: they write nothing
	touch $@
