"""Ask Qwen whether texts entail the claims of cheats, as docs/preregistration/cheats_checker.md plans.

python scripts/ship_cheats.py CASSETTE         # asks; can be stopped and started
python scripts/ship_cheats.py CASSETTE --ship  # writes data/recordings/cheat_labels.jsonl.gz
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ragbench.llm import Cassette
from ragbench.paths import packaged_data

sys.path.append(str(Path(__file__).parents[1] / "notebooks"))
import cheats
import recorded


def ask(cassette: Cassette) -> None:
    """Ask turn after turn, question after question."""
    model = recorded.RECORDINGS["qwen"].chat_model()
    rows = cheats.checked_rows()
    for turn in cheats.TURNS:
        for row in rows.itertuples():
            asked = cheats.checks(row.question, row.reference, row.context, row.answer)[turn]
            cheats.labels(
                model, row.question, asked, cassette=cassette, concurrency=1, progress=False
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cassette", type=Path)
    parser.add_argument("--ship", action="store_true", help="what is recorded")
    options = parser.parse_args()
    with Cassette(options.cassette) as cassette:
        if options.ship:
            print(cassette.export(packaged_data("recordings") / "cheat_labels.jsonl.gz"), "replies")
        else:
            ask(cassette)


if __name__ == "__main__":
    main()
