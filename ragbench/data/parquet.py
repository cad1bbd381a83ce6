"""Parquet files, for which pyarrow is needed (an extra)."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from ragbench.errors import ConfigError, DataError


def read_parquet(path: str | Path) -> pd.DataFrame:
    """Read a Parquet file; ConfigError without pyarrow, DataError for a file that is missing or damaged."""
    path = Path(path).expanduser()
    try:
        return pd.read_parquet(path)
    except ImportError:
        raise _no_pyarrow(path) from None
    except FileNotFoundError:
        raise DataError(f"there is no file {path}", "an existing file", "check the path") from None
    except (OSError, ValueError) as error:
        got = f"{path} cannot be read: {error}"
        raise DataError(got, "a Parquet file", "check that it was written whole") from None


def write_parquet(frame: pd.DataFrame, path: str | Path) -> Path:
    """Write a table as Parquet and return the path; ConfigError without pyarrow."""
    path = Path(path).expanduser()
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        frame.to_parquet(path, index=False)
    except ImportError:
        raise _no_pyarrow(path) from None
    return path


def _no_pyarrow(path: Path) -> ConfigError:
    return ConfigError(f"{path.name} without pyarrow", "the package pyarrow", 'pip install "ragbench[parquet]"')
