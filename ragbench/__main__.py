"""``python -m ragbench``: the commands, where no script folder is on the path (Windows without
activation).
"""

import sys

from ragbench.cli import main

if __name__ == "__main__":
    sys.exit(main())
