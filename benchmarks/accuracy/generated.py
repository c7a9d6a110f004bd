"""Tables that are drawn from known distributions: what no method can do better is known of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Table = tuple[np.ndarray, np.ndarray]


def imbalanced(generator: np.random.Generator) -> Table:
    """3,000 x 32, classes of 91, 6 and 3 % about, whose log odds are linear in the inputs."""
    x = generator.normal(size=(3000, 32))
    slopes = 0.12 * generator.normal(size=(32, 3))
    scores = x @ slopes + np.log([0.94, 0.035, 0.025]) + generator.gumbel(size=(3000, 3))
    return x, scores.argmax(-1)


def missing(generator: np.random.Generator) -> Table:
    """800 x 3, three outputs that share two functions, with noise of 0.1, and a fifth of them missing."""
    x = generator.normal(size=(800, 3))
    functions = np.stack([np.sin(2.0 * x[:, 0]) + x[:, 1], x[:, 1] * x[:, 2]], axis=-1)
    y = functions @ np.array([[1.0, 0.5, -1.0], [0.0, 1.0, 0.7]]) + 0.1 * generator.normal(size=(800, 3))
    return x, np.where(generator.random(y.shape) < 0.2, np.nan, y)


GENERATED: dict[str, Callable[[np.random.Generator], Table]] = {make.__name__: make for make in (imbalanced, missing)}
