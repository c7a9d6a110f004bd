"""Three tables of UCI that chose no default, with the field's folds: the estimators beside boosting and all peers.

``standard_splits.py`` shows the cells.
"""

from __future__ import annotations

import sys

from accuracy import boosting, installed, ours, peers
from accuracy.grid import LIMIT, REPEATED, add_peers_python, grid_arguments, measure
from accuracy.rows import FRESH


def main() -> None:
    """Measure the cells that are missing, one at a time; what takes long on one split has no others."""
    parser = add_peers_python(grid_arguments(__doc__ or "", "accuracy_fresh", FRESH))
    options = parser.parse_args()
    measure(options, [(ours, sys.executable), (boosting, sys.executable)], LIMIT)
    measure(options, [(peers, sys.executable), (installed, options.peers_python)], REPEATED)


if __name__ == "__main__":
    main()
