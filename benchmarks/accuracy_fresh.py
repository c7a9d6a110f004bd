"""Three tables of UCI that chose no default, with the field's folds: the estimators beside boosting and all peers.

``standard_splits.py`` shows the cells.
"""

from __future__ import annotations

import sys

from accuracy import boosting, installed, ours, peers
from accuracy.grid import LIMIT, add_peers_python, grid_arguments, measure
from accuracy.rows import FRESH


def main() -> None:
    """Measure the cells that are missing, one at a time; what takes too long on one split has no others."""
    parser = add_peers_python(grid_arguments(__doc__ or "", "accuracy_fresh", FRESH))
    options = parser.parse_args()
    methods = [(module, sys.executable) for module in (ours, boosting, peers)]
    measure(options, [*methods, (installed, options.peers_python)], repeated=LIMIT)


if __name__ == "__main__":
    main()
