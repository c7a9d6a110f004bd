"""How long a fit takes is told before it begins, without a fit."""

import numpy as np
import pandas
import pytest

from rfgp.sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor, baselines, fit_seconds
from rfgp.sklearn.fit_seconds import FitSize, in_words, tell
from rfgp.training import costs

KINDS = {"regressor": RandomFeatureGPRegressor, "classifier": RandomFeatureGPClassifier}


def rows(num_rows, num_columns=3):
    x = np.random.default_rng(0).normal(size=(num_rows, num_columns))
    return x, (x[:, 0] > 0.0) * 1


@pytest.fixture(autouse=True)
def same_machine(monkeypatch):
    """Estimates are those of one machine, whatever else runs on it."""
    for module in (fit_seconds, baselines):
        monkeypatch.setattr(module, "slowness", lambda: 1.0)


@pytest.mark.parametrize("name", KINDS)
def test_an_estimate_fits_nothing_and_grows_with_the_table(name):
    small, large = KINDS[name](), KINDS[name]()
    few, many = small.estimated_seconds(*rows(200)), large.estimated_seconds(*rows(20_000))
    assert 0.0 < few < many < large.estimated_seconds(*rows(20_000, 40))
    assert not [attribute for attribute in vars(large) if attribute.endswith("_")]


@pytest.mark.parametrize("name", KINDS)
def test_an_estimate_honors_the_time_limit_and_a_given_kernel(name):
    table = rows(5000)
    free = KINDS[name]().estimated_seconds(*table)
    assert KINDS[name](time_limit=0.25).estimated_seconds(*table) <= 0.25
    assert KINDS[name](time_limit=1e6).estimated_seconds(*table) == free
    assert 0.0 < KINDS[name]("matern32").estimated_seconds(*table) < free


@pytest.mark.parametrize("name", KINDS)
def test_errors_are_those_of_a_fit(name):
    x, y = rows(60)
    for wrong, settings in (((x[:50], y), {}), ((x, y), {"time_limit": -1.0}), ((x, y), {"average": "often"})):
        with pytest.raises(ValueError) as expected:
            KINDS[name](**settings).fit(*wrong)
        with pytest.raises(ValueError) as found:
            KINDS[name](**settings).estimated_seconds(*wrong)
        assert str(found.value) == str(expected.value)


def test_columns_of_a_frame_count_as_they_are_encoded():
    x, y = rows(3000)
    frame = pandas.DataFrame(x, columns=["a", "b", "c"]).assign(kind=np.resize(list("vwxyz"), 3000))
    model = RandomFeatureGPRegressor()
    assert model.estimated_seconds(frame, y) > model.estimated_seconds(frame.drop(columns="kind"), y)


@pytest.mark.parametrize("is_classes", [False, True])
@pytest.mark.parametrize("is_averaged", [False, True])
def test_every_size_of_a_fit_counts(is_classes, is_averaged):
    size = FitSize(2000, 10, 2, is_classes, is_averaged, True)
    for field in ("num_rows", "num_columns", "num_values"):
        larger = [size._replace(**{field: factor * getattr(size, field)}).seconds for factor in (1, 2)]
        assert 0.0 < larger[0] < larger[1]


def test_a_slow_machine_takes_longer(monkeypatch):
    size = FitSize(2000, 10, 6, True, False, True)
    fast = size.seconds
    monkeypatch.setattr(fit_seconds, "slowness", lambda: 3.0)
    np.testing.assert_allclose(size.seconds, 3.0 * fast)


def test_the_probe_is_made_once():
    costs.slowness.cache_clear()
    first = costs.slowness()
    assert 0.0 < first == costs.slowness()
    assert costs.slowness.cache_info().misses == 1


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.234, "about 0.2 s"), (24.0, "about 20 s"), (170.0, "about 3 min"), (7000.0, "about 2 h"), (1e5, "about 30 h")],
)
def test_times_have_one_digit(seconds, words):
    assert in_words(seconds) == words


def test_a_long_fit_is_told_with_what_makes_it_shorter(capsys):
    tell(20.0, "time_limit=60")
    tell(200.0, "time_limit=60")
    tell(200.0, None)
    assert capsys.readouterr().err.splitlines() == [
        "the fit takes about 20 s",
        "the fit takes about 3 min; time_limit=60 makes it shorter",
        "the fit takes about 3 min",
    ]


@pytest.mark.parametrize("name", KINDS)
def test_a_fit_tells_its_time_before_it_begins_where_that_is_wanted(name, capsys):
    settings = {"kernel": "matern32", "num_features": 16, "max_evaluations": 2, "random_state": 0}
    KINDS[name](verbose=True, **settings).fit(*rows(60))
    assert capsys.readouterr().err.startswith("the fit takes about ")
    KINDS[name](**settings).fit(*rows(60))
    assert not capsys.readouterr().err
