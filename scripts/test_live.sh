#!/bin/sh
# Run the whole live path against a real llama.cpp server that serves a made model with random weights.
# Builds .venv-live on first use; compiling llama.cpp takes about six minutes on two cores and needs a C++ compiler and cmake.
set -eu
python="$1"
venv=.venv-live

if ! "$venv/bin/python" -c "import llama_cpp, gguf, uvicorn" 2>/dev/null; then
    echo "test-live: building $venv (compiles llama.cpp)" >&2
    "$python" -c 'import ensurepip' 2>/dev/null && "$python" -m venv "$venv" || uv venv --quiet --seed "$venv"
    "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "llama-cpp-python[server]==0.3.36" "gguf==0.19.0"
fi
RAGBENCH_LLAMA_PYTHON="$PWD/$venv/bin/python" exec "$python" -m pytest -m live tests
