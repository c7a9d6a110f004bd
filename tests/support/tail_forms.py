"""Both forms of a bound as functions of all of their arguments, for tests of wrong ones."""

import functools


def failure_probability(bound):
    """The probability of failure of ``bound(**options)``."""

    @functools.wraps(bound)
    def function(num_features, epsilon, **options):
        return bound(**options).failure_probability(num_features, epsilon)

    return function


def num_features(bound):
    """The number of features of ``bound(**options)``."""

    @functools.wraps(bound)
    def function(epsilon, delta, **options):
        return bound(**options).num_features(epsilon, delta)

    function.__name__ += "_num_features"
    return function
