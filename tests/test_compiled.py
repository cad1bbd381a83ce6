"""Compiled loops where no home can be written to, as in a container."""

import os
import subprocess
import sys

import pytest

CODE = """
import os, sys
from ragbench._compiled import compiled
# a source file in a folder that nobody can write to
name = f"/proc/self/fd/{os.open(sys.argv[1], os.O_RDONLY)}"
names = {}
exec(compile(open(sys.argv[1]).read(), name, "exec"), names)
print(compiled()(names["double"])(21))
"""


@pytest.mark.posix
@pytest.mark.parametrize("cache", ["cache", None])
def test_without_a_home_the_code_is_kept_in_our_cache_or_nowhere(tmp_path, cache):
    source = tmp_path / "loops.py"
    source.write_text("def double(x):\n    return 2 * x\n")
    home = "/proc/nowhere"
    around = {**os.environ, "HOME": home, "XDG_CACHE_HOME": home, "RAGBENCH_CACHE": home}
    around.pop("NUMBA_CACHE_DIR", None)
    if cache:
        around["RAGBENCH_CACHE"] = str(tmp_path / cache)
    command = [sys.executable, "-c", CODE, str(source)]
    done = subprocess.run(command, env=around, capture_output=True, text=True)
    assert done.stdout == "42\n", done.stderr
    assert bool(list(tmp_path.glob("cache/numba/**/*.nb?"))) == bool(cache)
