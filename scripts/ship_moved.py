"""Make the numbers that notebook 52 reads, as docs/preregistration/judge_moved.md plans; no model is asked, and no
other data set is needed.

    python scripts/ship_moved.py          # judged_items.csv.gz: what judges and labels say of each item
    python scripts/ship_moved.py --draws  # and moved.csv: how often corrections hold; two minutes

Writes in data/recordings/.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ragbench.paths import project_root

sys.path.append(str(Path(__file__).parents[1] / "notebooks"))
import moved


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--draws", action="store_true", help="and draw from the pools")
    options = parser.parse_args()
    folder = project_root() / "data" / "recordings"
    table = moved.items()
    packed = {"method": "gzip", "mtime": 0}
    table.to_csv(folder / "judged_items.csv.gz", index=False, compression=packed)
    if options.draws:
        moved.every_draw(table).to_csv(folder / "moved.csv", index=False)


if __name__ == "__main__":
    main()
