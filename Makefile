# Every target works as the first command in a fresh clone, with or without uv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

.PHONY: setup reproduce test lab check format clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml scripts/setup.sh
	PYTHON="$(PYTHON)" sh scripts/setup.sh $(VENV)
	touch $@

reproduce: setup
	$(BIN)/ragbench reproduce

test: setup
	$(BIN)/python -m pytest -n auto --dist worksteal $(PYTEST_ARGS)

lab: setup
	$(BIN)/ragbench lab

check: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

format: setup
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:
	rm -rf $(VENV) data/cache data/results
