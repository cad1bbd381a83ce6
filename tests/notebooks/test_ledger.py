"""The notebooks, run on the recorded data, give the committed ledger and the committed CSV of every
figure.
"""

import shutil

import numpy as np
import pandas as pd
import pytest

from ragbench import cli
from ragbench.papers import KEY
from ragbench.paths import project_root

PUBLISHED = project_root() / "figures"
# rows of other files are told apart by their lines
ROW = {"ledger.csv": [*KEY, "recorded_by", "ours_by"]}
# Cells that another processor's single precision changes, each with its relative tolerance. Pairs
# are written with six digits.
BY_PROCESSOR = [
    (
        r"ledger\.csv ragchecker \| Table 2 \| (.* nested|MiniLM cosine|BERTScore on MiniLM) \| "
        r".* ours",
        1e-6,
    ),
    (r"30_pairs\.csv line (5[2-9]|[6-9]\d|10[01]) (better|worse)", 1e-5),
]


def cells(folder):
    """Every cell of every CSV as text, by file, row and column; measured seconds aside."""
    found = {}
    for path in sorted(folder.glob("*.csv")):
        frame = pd.read_csv(path, dtype=str, keep_default_na=False)
        lines = [f"line {i + 2}" for i in frame.index]
        rows = frame[ROW[path.name]].agg(" | ".join, axis=1) if path.name in ROW else lines
        found[path.name, "header", ""] = ",".join(frame)
        for row, values in zip(rows, frame.to_dict("records"), strict=True):
            timed = path.name in ROW and "| seconds |" in row
            for column in values.keys() - ({"ours"} if timed else {"seconds"}):
                found[path.name, row, column] = values[column]
    return pd.Series(found, dtype=str).rename_axis(["file", "row", "column"])


def differences(committed, now):
    """Cells that differ between two folders: texts at all, numbers by more than 1e-9."""
    both = pd.concat({"committed": cells(committed), "now": cells(now)}, axis=1).fillna("(none)")
    both = both[both["committed"] != both["now"]].sort_index().reset_index()
    # Of a file that is on one side alone, its header says so.
    alone = both.loc[
        (both["row"] == "header") & both[["committed", "now"]].eq("(none)").any(axis=1), "file"
    ]
    both = both[~both["file"].isin(alone) | (both["row"] == "header")].reset_index(drop=True)
    place = both["file"] + " " + both["row"] + " " + both["column"]
    tolerance = np.full(len(both), 1e-9)
    for pattern, wider in BY_PROCESSOR:
        tolerance[place.str.fullmatch(pattern).to_numpy(bool)] = wider
    before, after = (pd.to_numeric(both[side], errors="coerce") for side in ("committed", "now"))
    close = (before - after).abs() <= np.maximum(
        1e-9, tolerance * np.maximum(before.abs(), after.abs())
    )
    return both[~close].reset_index(drop=True)


@pytest.fixture
def copy(tmp_path):
    shutil.copytree(PUBLISHED, tmp_path / "copy", ignore=shutil.ignore_patterns("*.png"))
    return tmp_path / "copy"


def test_a_folder_differs_in_nothing_from_its_copy(copy):
    assert differences(PUBLISHED, copy).empty


def test_a_changed_number_a_missing_row_and_a_new_file_are_found(copy):
    path = copy / "24_table_3.csv"
    table = pd.read_csv(path, dtype=str)
    table.loc[1, "f1"] = f"{float(table.loc[1, 'f1']) * (1 + 3e-9):.17g}"
    table.iloc[:-1].to_csv(path, index=False)
    (copy / "20_table_4.csv").write_text("a\n1\n")
    (copy / "93_scores.csv").unlink()
    ledger = pd.read_csv(copy / "ledger.csv", dtype=str, keep_default_na=False)
    measured = ledger.index[ledger["ours"] != ""]
    ledger.loc[measured[0], "note"] += "!"
    ledger.drop(measured[1]).to_csv(copy / "ledger.csv", index=False)
    found = differences(PUBLISHED, copy)
    rows = ledger.set_index(ROW["ledger.csv"]).index[measured[:2]].map(" | ".join)
    changed = found.drop_duplicates(["file", "row"])
    assert set(changed["file"] + " " + changed["row"]) == {
        "24_table_3.csv line 3",
        f"24_table_3.csv line {len(table) + 1}",
        "20_table_4.csv header",
        "93_scores.csv header",
        *("ledger.csv " + rows),
    }
    number = found[found["row"] == "line 3"].iloc[0]
    assert (number["column"], number["committed"], number["now"][:7]) == ("f1", "42.1", "42.1000")


def test_a_processor_s_last_digits_are_allowed_in_named_cells_only(copy):
    pairs = pd.read_csv(copy / "30_pairs.csv", dtype=str, keep_default_na=False)
    for line in (60, 75, 10):
        pairs.loc[line - 2, "worse"] = f"{float(pairs.loc[line - 2, 'worse']) * (1 + 8e-6):.12g}"
    pairs.to_csv(copy / "30_pairs.csv", index=False)
    assert differences(PUBLISHED, copy)["row"].tolist() == ["line 10"]


@pytest.mark.data
@pytest.mark.slow
@pytest.mark.ledger
def test_the_notebooks_give_the_committed_ledger_and_figures(tmp_path, monkeypatch):
    monkeypatch.setenv("RAGBENCH_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("RAGBENCH_FIGURES", str(tmp_path / "figures"))
    assert cli.main(["reproduce"]) == 0, "a notebook failed, see below"
    if len(found := differences(PUBLISHED, tmp_path / "figures")):
        pytest.fail(
            f"{len(found)} cells differ:\n{found.head(60).to_string(max_colwidth=120)}",
            pytrace=False,
        )
