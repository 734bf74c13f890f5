# The verbs of this repository. `make` alone runs the quick tests.

PYTHON ?= python3
BIN := .venv/bin

.PHONY: test demo slow lint types bench all clean

test: .venv/ready
	$(BIN)/python -m pytest

demo: .venv/ready
	$(BIN)/gitmem demo

slow: .venv/ready
	$(BIN)/python -m pytest -m slow

lint: .venv/ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check gitmem tests benchmarks

types: .venv/ready
	$(BIN)/mypy

bench: .venv/ready
	$(BIN)/python -m benchmarks

all: lint types test slow

clean:
	rm -rf .venv .pytest_cache .mypy_cache .ruff_cache .hypothesis build dist gitmem-demo*

.venv/ready: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/pip install -q -e '.[dev]'
	touch $@
