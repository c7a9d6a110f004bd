"""Error, negative log likelihood and processor seconds of the estimators on the field's data sets, beside boosting.

Each estimator of each set runs in a process of its own, on one thread, for at most a minute of the processor, with its
defaults or a time limit. Boosting runs beside them, as seconds of other runs are of other machines.
``standard_splits.py`` shows the cells beside those of ``accuracy_peers.py``.
"""

from __future__ import annotations

import sys

from accuracy import boosting, ours
from accuracy.grid import LIMIT, grid_arguments, measure


def main() -> None:
    """Measure the cells that are missing, one at a time; what takes too long on one split has no others."""
    options = grid_arguments(__doc__ or "", "accuracy_per_second").parse_args()
    measure(options, [(ours, sys.executable), (boosting, sys.executable)], repeated=LIMIT)


if __name__ == "__main__":
    main()
