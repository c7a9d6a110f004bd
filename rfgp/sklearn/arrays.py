"""Arrays and seeds, as scikit-learn has them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils import check_random_state

Floats = NDArray[np.float64]


def drawn_seed(random_state: Any) -> int:
    """A seed for PyTorch, from what scikit-learn takes as ``random_state``.

    :param random_state: a seed, a RandomState, or None.
    """
    return int(check_random_state(random_state).randint(2**31 - 1))
