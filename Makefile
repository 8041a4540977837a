# Each target sets up what it needs, from a fresh clone with Python 3.11+, make and gcc.
PYTHON ?= python3
BIN := .venv/bin

.DEFAULT_GOAL := help
.PHONY: help demo test coverage fuzz bench lint format docs lock clean

help:
	@echo "make demo      watch a small training on simulated GPUs"
	@echo "make test      all checks and tests"
	@echo "make coverage  which lines of our own process the tests reach"
	@echo "make fuzz      look for what breaks readers and the server, for an hour"
	@echo "make bench     cost and accuracy, beside peers"
	@echo "make lint      formatting, lint, types, import direction"
	@echo "make format    format the code"
	@echo "make docs      regenerate tables and pictures"
	@echo "make lock      choose the newest versions for requirements.txt"

demo: .venv/ready
	@$(BIN)/pulsetrain demo

test: lint .venv-user/ready .venv-notebook/ready .venv-transfer/ready .venv-trackers/ready
	@.ci/servers
	@[ -e .debian-root/ready ] || .ci/debian-root .debian-root $(BIN)/python
	@.ci/tests $(BIN)

# In a target of its own: measuring takes as long as the tests themselves.
coverage: .venv/ready
	$(BIN)/pytest -n 3 --dist worksteal --cov --cov-report=term

# The same targets as in `make test`, with random examples, many times as many: PULSETRAIN_FUZZ_TIMES.
fuzz: .venv/ready
	PULSETRAIN_FUZZ_TIMES=$${PULSETRAIN_FUZZ_TIMES:-50} $(BIN)/pytest -n 3 --timeout 0 tests/fuzz

bench: .venv-bench/ready .venv-user/ready
	@.ci/servers
	.venv-bench/bin/python -m benchmarks $(RECORD)

lint: .venv/ready
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/ready
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

docs: .venv/ready .venv-user/ready
	$(BIN)/python docs/generate.py --pictures
	$(BIN)/python docs/web_pictures.py
	$(BIN)/python -m dashboards

lock: .venv/ready
	$(BIN)/pip install --quiet uv
	$(BIN)/uv pip compile --quiet --universal --upgrade --no-header --no-annotate --no-emit-index-url --no-emit-find-links \
		--group dev --output-file requirements.txt pyproject.toml
	for kind in user notebook bench transfer trackers; do \
		rm -rf .venv-$$kind && $(PYTHON) -m venv .venv-$$kind && \
		.venv-$$kind/bin/pip install --quiet -r requirements-$$kind.in && \
		(echo "# Written by make lock from requirements-$$kind.in."; .venv-$$kind/bin/pip freeze | sed 's/+cpu//') \
			> requirements-$$kind.txt; done

.venv/ready: requirements.txt pyproject.toml
	@.ci/venv $(PYTHON) .venv requirements.txt --with-pulsetrain

# What users train with, PyTorch and its frameworks, and no pulsetrain: tests run training programs in it.
.venv-user/ready: requirements-user.txt
	@.ci/venv $(PYTHON) .venv-user requirements-user.txt

# JupyterLab, in which tests run notebooks. Its kernel sees what is in .venv too: pulsetrain and all that it needs.
.venv-notebook/ready: requirements-notebook.txt .venv/ready
	@.ci/venv $(PYTHON) .venv-notebook requirements-notebook.txt
	@$(BIN)/python -c "import pathlib, sysconfig; ours, = pathlib.Path('.venv-notebook').glob('lib/python*/site-packages'); \
		(ours / 'pulsetrain.pth').write_text('import site; site.addsitedir(%r)' % sysconfig.get_path('purelib'))"

# The clients of Drive, S3 and SSH, and a server that speaks S3: they are larger than all else that tests need.
.venv-transfer/ready: requirements-transfer.txt
	@.ci/venv $(PYTHON) .venv-transfer requirements-transfer.txt

# Experiment trackers, and what a server of MLflow needs.
.venv-trackers/ready: requirements-trackers.txt
	@.ci/venv $(PYTHON) .venv-trackers requirements-trackers.txt

# The peers to be measured beside us.
.venv-bench/ready: requirements-bench.txt requirements.txt pyproject.toml
	@.ci/venv $(PYTHON) .venv-bench requirements.txt
	@.ci/venv $(PYTHON) .venv-bench requirements-bench.txt --with-pulsetrain

clean:
	rm -rf .coverage .venv .venv-user .venv-notebook .venv-bench .venv-transfer .venv-trackers .debian-root .mypy_cache .pytest_cache .ruff_cache .hypothesis \
		.import_linter_cache
