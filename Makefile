# Every target works as the first command in a fresh clone, with or without uv.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready
TESTS := $(VENV)/.tests-ready

# Or every kernel and child process compiles all packages again: seven seconds of CPU each.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup reproduce test drills lab ollama serve check format docs clean

setup: $(STAMP)

$(STAMP): requirements.lock pyproject.toml scripts/setup.sh
	PYTHON="$(PYTHON)" sh scripts/setup.sh $(VENV)
	touch $@

reproduce: setup
	$(BIN)/ragbench reproduce

# Packages that results are compared with; they have no wheel, so a user's environment does without them.
$(TESTS): tests/requirements.lock $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r tests/requirements.lock
	touch $@

# One process more than cores, because tests also wait for servers and a browser; one thread of OpenBLAS in each.
test: setup $(TESTS)
	OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -n $$($(BIN)/python -c "import os; print(os.cpu_count() + 1)") \
		--dist worksteal -m "$(or $(MARKED),not browser and not live and not ollama and not ledger and not costly)" $(PYTEST_ARGS)

# What takes a browser, the small model or a real Ollama. `make test MARKED=costly` has the longest ones.
drills: setup
	$(MAKE) test MARKED="(browser or live or ollama) and not costly"

# Find a real Ollama, or build one (needs Go; three minutes, once), and serve the models of the environment with it.
ollama: setup
	@scripts/ollama.sh

serve: setup
	$(BIN)/python scripts/serve_ollama.py

lab: setup
	$(BIN)/ragbench lab

check: setup $(TESTS)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/python scripts/write_stubs.py --check
	$(BIN)/basedpyright --level error --pythonpath $(BIN)/python

# And the stubs of packages that load names late.
format: setup
	$(BIN)/python scripts/write_stubs.py
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# mkdocs runs in an environment of its own; PAGES are what its nav and their links name.
PAGES := README.md NOTICE CONTRIBUTING.md CHANGELOG.md CITATION.cff docs benchmarks/README.md 'data/minihop/*.md' data/recordings/README.md data/hotpotqa/README.md \
	'figures/*.png' 'figures/ledger.*' 'notebooks/*.ipynb'

docs:
	rm -rf build/docs && mkdir -p build/docs
	git ls-files $(PAGES) | tar -cf - -T - | tar -xf - -C build/docs
	$(PYTHON) -m venv build/mkdocs
	build/mkdocs/bin/pip install -q --disable-pip-version-check -r scripts/site_requirements.txt
	PYTHONWARNINGS=ignore build/mkdocs/bin/mkdocs build --strict

clean:
	rm -rf $(VENV) data/cache data/results
