"""The estimator with sizes of its own choice, and with given numbers of landmarks."""

from __future__ import annotations

from .ours import estimator
from .rows import Method

NUMBERS: dict[str, Method] = {
    "rfgp": estimator(),
    **{f"rfgp, {count} landmarks": estimator(num_features=count) for count in (256, 512, 1024)},
}
CLASSES = NUMBERS
