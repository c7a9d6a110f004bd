"""Error and negative log likelihood of the peers of rfgp, with the processor seconds of fit and predictions.

What a peer does not find itself (rate and epochs of SVGP) is shown for several values, each at its own seconds alone:
the best on the test rows is then better than what a user finds. All else are defaults. Nothing of rfgp is in these
results, so they outlive its commits.
"""

from __future__ import annotations

import math
import sys

from accuracy import installed, peers
from accuracy.grid import REPEATED, add_peers_python, grid_arguments, measure


def main() -> None:
    """Measure the cells that are missing, one at a time."""
    parser = add_peers_python(grid_arguments(__doc__ or "", "accuracy_peers"))
    parser.add_argument(
        "--full", action="store_true", help=f"all splits; default: the first alone of what takes more than {REPEATED} s"
    )
    options = parser.parse_args()
    modules = [(peers, sys.executable), (installed, options.peers_python)]
    measure(options, modules, math.inf if options.full else REPEATED, is_of_commit=False)


if __name__ == "__main__":
    main()
