# Two commands set everything up: `make run` and `make test`. Both are quick once it is there.
SHELL  := /bin/bash
# The distribution's own is built with profiles: it makes kernels in five sixths of the time of one that pyenv builds.
PYTHON ?= $(shell /usr/bin/python3.11 -c 'import ensurepip' 2>/dev/null && echo /usr/bin/python3.11 || echo python3.11)
VENV   := .venv
BIN    := $(VENV)/bin
DEBIAN := qemu-system-arm bubblewrap gcc libpython3-dev gcc-arm-none-eabi libnewlib-arm-none-eabi clang-22 llvm-22 \
          lld-22 cmake chromium-headless-shell
SUDO   := $(if $(filter 0,$(shell id -u)),,sudo)

.PHONY: run test test-fast test-pages lint docs bench setup debian lock clean

setup: debian $(VENV)/.installed
	@$(BIN)/python -m tosaic.support.build_native || true

debian:
	@missing=""; for p in $(DEBIAN); do \
	   dpkg-query -W -f='$${Status}' $$p 2>/dev/null | grep -q 'ok installed' || missing="$$missing $$p"; done; \
	 if [ -n "$$missing" ]; then echo "installing Debian packages:$$missing"; \
	   $(SUDO) apt-get update -qq && DEBIAN_FRONTEND=noninteractive $(SUDO) apt-get install -y -qq --no-install-recommends $$missing >/dev/null; fi

# The lock names every version, so that two machines get the same; `make lock` writes it anew from pyproject.toml.
$(VENV)/.installed: pyproject.toml requirements.lock
	@test -x $(BIN)/python || { echo "creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "installing Python packages (a few minutes the first time)"
	@$(BIN)/python -m pip install -q --upgrade pip setuptools
	@$(BIN)/python -m pip install -q -r requirements.lock
	@$(BIN)/python -m pip install -q --no-deps -e .
	@touch $@

# torch goes first: a range resolved by another package would take a build with CUDA.
lock:
	@rm -rf build/lock && $(PYTHON) -m venv build/lock
	@build/lock/bin/python -m pip install -q --upgrade pip
	@build/lock/bin/python -m pip install -q torch==2.13.0
	@build/lock/bin/python -m pip install -q '.[dev]'
	@build/lock/bin/python -m pip freeze --exclude tosaic | sed 's/+cpu$$//' | grep -v '^nvidia-' > requirements.lock

# The main job on a real model and real data.
run: setup
	@$(BIN)/python examples/digits/run.py

# Tests start hundreds of Python processes, which read what the first has compiled.
test test-fast test-pages: export PYTHONDONTWRITEBYTECODE :=

test: setup
	@$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

# What a change breaks first: two minutes on two quiet cores.
test-fast: setup
	@$(BIN)/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder -m "fast and not pages"

# Every command of README.md and docs/ as a reader types it; slow.
test-pages: setup
	@$(BIN)/python -m pytest -m pages

docs: setup
	@$(BIN)/python -m sphinx -q -b html docs build/docs
	@echo "build/docs/index.html"

bench: setup
	@$(BIN)/python benchmarks/table.py

lint: setup
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy
	@$(BIN)/pyright --pythonpath $(BIN)/python

clean:
	rm -rf build dist *.egg-info
