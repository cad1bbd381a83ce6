"""Files as users bring them."""

import json

import pytest


@pytest.fixture
def put(tmp_path):
    """Writes a file under a name, and returns its path: a text, bytes, or another value as JSON."""

    def write(name, content):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if not isinstance(content, str | bytes):
            content = json.dumps(content)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write
