"""Tables that are drawn from known distributions: what no method can do better is known of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Table = tuple[np.ndarray, np.ndarray]


def _odds(generator: np.random.Generator, log_odds: np.ndarray) -> np.ndarray:
    return (generator.random(len(log_odds)) < 1.0 / (1.0 + np.exp(-log_odds))).astype(int)


def noisy_labels(generator: np.random.Generator) -> Table:
    """17,000 x 10, two classes: log odds 6 sin(2 x1) + 3 x2 x3 - 2 |x4| + 1.6, and 8 % of the labels flipped."""
    x = generator.normal(size=(17_000, 10))
    log_odds = 6.0 * np.sin(2.0 * x[:, 0]) + 3.0 * x[:, 1] * x[:, 2] - 2.0 * np.abs(x[:, 3]) + 1.6
    labels = _odds(generator, log_odds)
    return x, np.where(generator.random(len(x)) < 0.08, 1 - labels, labels)


def imbalanced(generator: np.random.Generator) -> Table:
    """3,000 x 32, classes of 91, 6 and 3 % about, whose log odds are linear in the inputs."""
    x = generator.normal(size=(3000, 32))
    slopes = 0.12 * generator.normal(size=(32, 3))
    scores = x @ slopes + np.log([0.94, 0.035, 0.025]) + generator.gumbel(size=(3000, 3))
    return x, scores.argmax(-1)


def few_balanced(generator: np.random.Generator) -> Table:
    """900 x 2, two equal classes: log odds 1.2 sin(2 x1) + 0.8 x2."""
    x = generator.normal(size=(900, 2))
    return x, _odds(generator, 1.2 * np.sin(2.0 * x[:, 0]) + 0.8 * x[:, 1])


def few_rare(generator: np.random.Generator) -> Table:
    """900 x 2, a class of 6 % about: the same log odds, times 1.5 and less 3.6."""
    x = generator.normal(size=(900, 2))
    return x, _odds(generator, 1.8 * np.sin(2.0 * x[:, 0]) + 1.2 * x[:, 1] - 3.6)


def missing(generator: np.random.Generator) -> Table:
    """800 x 3, three outputs that share two functions, with noise of 0.1, and a fifth of them missing."""
    x = generator.normal(size=(800, 3))
    functions = np.stack([np.sin(2.0 * x[:, 0]) + x[:, 1], x[:, 1] * x[:, 2]], axis=-1)
    y = functions @ np.array([[1.0, 0.5, -1.0], [0.0, 1.0, 0.7]]) + 0.1 * generator.normal(size=(800, 3))
    return x, np.where(generator.random(y.shape) < 0.2, np.nan, y)


def counts(generator: np.random.Generator) -> Table:
    """4,000 x 4, Poisson counts of rate exp(1 + sin(2 x1) + x2 x3 / 2)."""
    x = generator.normal(size=(4000, 4))
    return x, generator.poisson(np.exp(1.0 + np.sin(2.0 * x[:, 0]) + 0.5 * x[:, 1] * x[:, 2])).astype(float)


GENERATED: dict[str, Callable[[np.random.Generator], Table]] = {
    make.__name__: make for make in (noisy_labels, imbalanced, few_balanced, few_rare, missing, counts)
}
