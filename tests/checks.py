"""What tests of many modules assert in the same words: that a call is refused, and with which message."""

import pytest

from ragbench.errors import ConfigError


def refusals(*cases):
    """Return a test that every call is refused: ``(call, message)`` by a ConfigError, or ``(call, error, message)``."""

    @pytest.mark.parametrize("case", cases, ids=[case[-1] for case in cases])
    def test(case):
        call, *error, message = case
        with pytest.raises(*error or (ConfigError,), match=message):
            call()

    return test
