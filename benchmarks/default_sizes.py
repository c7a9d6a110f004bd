"""The default numbers of landmarks beside others, on a fold that no other figure is of.

The sets are those with the field's ten folds; ``accuracy_per_second.py`` reports folds 0 to 2, and this script fold 5.
"""

from __future__ import annotations

import sys

from accuracy import sizes
from accuracy.grid import grid_arguments, measure


def main() -> None:
    """Measure the cells that are missing, one at a time."""
    parser = grid_arguments(__doc__ or "", "default_sizes")
    parser.set_defaults(sets=["airfoil", "pol", "kin40k", "keggundirected"], seeds=[6])
    measure(parser.parse_args(), [(sizes, sys.executable)])


if __name__ == "__main__":
    main()
