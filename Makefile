# Each target sets up what it needs, from a fresh clone with Python 3.11+, make and gcc.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test bench lint format docs lock clean

help:
	@echo "make demo    watch a small training on simulated GPUs"
	@echo "make test    all checks and tests"
	@echo "make bench   cost and accuracy, beside peers"
	@echo "make lint    formatting, lint, types, import direction"
	@echo "make format  format the code"
	@echo "make docs    write the generated tables and pictures anew"
	@echo "make lock    choose the newest versions for requirements.txt"

demo: .venv/ready
	@$(BIN)/pulsetrain demo

test: lint
	$(BIN)/pytest

bench: .venv/ready
	$(BIN)/python -m benchmarks

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/ready
	$(BIN)/python docs/generate.py

lock: .venv/ready
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --upgrade --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
		--group dev --group bench --output-file requirements.txt pyproject.toml

.venv/ready: requirements.txt pyproject.toml
	@.ci/venv $(PYTHON)
	@touch $@

clean:
	rm -rf .venv .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
