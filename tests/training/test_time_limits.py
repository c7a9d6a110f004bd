"""Time limits hold for starts, stages, evaluations and the fit at the end, by a clock that the tests move."""

import math

import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood

import rfgp
from rfgp.models import LaplaceGP, WeightSpaceGP, WeightSpaceVariationalGP
from rfgp.sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor, choice, labels, model_size
from rfgp.training import CompositeLikelihood, auto, costs, objectives, session, timing, tuning
from rfgp.training.minibatches import MinibatchTraining
from rfgp.training.near_rows import NearRows
from rfgp.training.neighbors import NeighborObjective, UnconditionedObjective
from rfgp.training.run import Maximization

ROWS, PER_ROW, GRADIENT = 600, 0.01, 10.0
"""Seconds that a fit takes for every row, and how many times as long an evaluation with its gradient takes."""


class Clock:
    def __init__(self):
        self.now, self.evaluations = 0.0, []

    def __call__(self):
        return self.now

    def spend(self, num_rows, is_evaluation):
        self.now += PER_ROW * num_rows * (GRADIENT if is_evaluation else 1.0)
        if is_evaluation:
            self.evaluations.append(num_rows)


@pytest.fixture
def clock(monkeypatch):
    """A clock that every fit and every evidence of a model moves."""
    made = Clock()
    monkeypatch.setattr(timing, "clock", made)
    monkeypatch.setattr(WeightSpaceGP, "condition", slow(WeightSpaceGP.condition, made))
    monkeypatch.setattr(LaplaceGP, "find_mode", slow(LaplaceGP.find_mode, made))
    evidence = objectives.log_evidence

    def slow_evidence(of_model, checked):
        made.spend(len(checked.x), torch.is_grad_enabled())
        return evidence(of_model, checked)

    monkeypatch.setattr(objectives, "log_evidence", slow_evidence)
    return made


def slow(fit, clock):
    def slowly(self, x, *rest, **options):
        clock.spend(len(x if isinstance(x, torch.Tensor) else x.x), torch.is_grad_enabled())
        return fit(self, x, *rest, **options)

    return slowly


def rows(count=ROWS):
    x = torch.linspace(-1, 1, count, dtype=torch.float64).unsqueeze(-1)
    return x, torch.sin(4 * x[:, 0])


def model(kind=WeightSpaceGP, likelihood=None):
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()).double(), 4, input_dim=1, seed=0)
    return kind(kernel, GaussianLikelihood().double() if likelihood is None else likelihood)


@pytest.mark.parametrize("kind", [WeightSpaceGP, LaplaceGP])
@pytest.mark.parametrize("limit", [30.0, 100.0, 600.0])
def test_the_limit_holds_where_one_evaluation_of_all_rows_takes_60_seconds(clock, kind, limit):
    """Starts and parameters are compared on some of the rows, and the model is there at the end."""
    x, y = rows()
    made = model(kind, gpytorch.likelihoods.StudentTLikelihood().double() if kind is LaplaceGP else None)
    summary = rfgp.fit(made, x, y, time_limit=limit, progress=False)
    assert clock.now <= 1.2 * limit
    assert summary.seconds <= 1.2 * limit and "time limit" in summary.message
    assert ROWS not in clock.evaluations
    assert torch.isfinite(made.posterior(x[:2]).mean).all()
    assert math.isfinite(summary.log_marginal_likelihood)


def test_enough_time_takes_all_rows(clock):
    x, y = rows()
    summary = rfgp.fit(model(), x, y, time_limit=1e5, progress=False)
    assert clock.now <= 1e5 and "time limit" not in summary.message
    assert clock.evaluations[-1] == ROWS


@pytest.mark.parametrize("strategy", ["auto", "evidence", "subset", "blocks"])
@pytest.mark.filterwarnings("ignore:KL")
def test_no_time_at_all_leaves_a_fitted_model(clock, strategy, monkeypatch):
    """What is left may be negative where a share of it is taken."""
    monkeypatch.setattr(auto, "SMALL", 100)
    x, y = rows(200)
    made = model()
    rfgp.fit(made, x, y, time_limit=1e-3, strategy=strategy, progress=False)
    assert clock.now <= 1.2e-3 + 10 * PER_ROW * len(x)
    assert torch.isfinite(made.posterior(x[:2]).mean).all()


def test_an_epoch_ends_where_time_does(clock, monkeypatch):
    step = MinibatchTraining._step
    monkeypatch.setattr(MinibatchTraining, "_step", lambda *args: clock.spend(100, False) or step(*args))
    x, y = rows(64)
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=8)
    summary = rfgp.fit(model(WeightSpaceVariationalGP), loader, time_limit=7.5, progress=False)
    assert summary.evaluations == 4  # a second each, and half a second for every batch of the bound at the end
    assert "time limit in epoch 1" in summary.message


def test_sizes_that_are_too_large_are_not_measured(monkeypatch):
    measured = []

    def seconds(made, x, y, probe):
        measured.append(made.covar_module.num_scalar_features)
        return 0.1 * (measured[-1] / 128) ** 2

    def make(size):
        kernel = rfgp.approximate(RBFKernel(), size.num_features, input_dim=1, method="fourier", seed=0)
        return WeightSpaceGP(kernel, GaussianLikelihood())

    monkeypatch.setattr(model_size, "condition_seconds", seconds)
    x, y = (part.float() for part in rows(20))
    limit = timing.Deadline.after(10.0)
    found = model_size.timed_size(lambda size: size, make, x, y, limit, 0.0, takes_evidence=False)
    assert max(measured) == found.num_features == 512
    least = model_size.timed_size(lambda size: size, make, x, y, limit, 0.0, takes_evidence=True, num_cells=3000)
    assert least.num_features == 128


def test_no_size_is_measured_where_the_first_fit_took_all_time(monkeypatch):
    monkeypatch.setattr(model_size, "condition_seconds", lambda *args: pytest.fail("measured after the end"))

    def make(size):
        kernel = rfgp.approximate(RBFKernel(), size.num_features, input_dim=1, method="fourier", seed=0)
        return WeightSpaceGP(kernel, GaussianLikelihood())

    x, y = (part.float() for part in rows(20))
    over = timing.Deadline(timing.clock())
    assert model_size.timed_size(lambda size: size, make, x, y, over, 0.0, takes_evidence=False).num_features == 128


def test_noise_is_learned_after_the_limit_where_that_is_quick(clock):
    x, y = rows()
    noisy = y + 3.0 * torch.randn(ROWS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    late = model()
    summary = rfgp.fit(late, x, noisy, strategy="subset", time_limit=1e-6, progress=False)
    assert summary.evaluations > 0 and summary.stages[-1].name == "noise, scale and mean"
    assert 6.0 < float(late.likelihood.noise) < 13.0


def test_features_of_many_outputs_are_not_compared_with_an_exact_covariance(monkeypatch):
    monkeypatch.setattr(session, "lost_posterior", lambda *_: pytest.fail("an exact covariance of all outputs"))
    x, y = rows(40)
    outputs = y.unsqueeze(-1) * torch.linspace(0.5, 2.0, 70, dtype=torch.float64)
    kernel = MultitaskKernel(RBFKernel(), num_tasks=70, rank=1).double()
    several = WeightSpaceGP(
        rfgp.approximate(kernel, 4, input_dim=1, seed=0), MultitaskGaussianLikelihood(70).double(), None
    )
    rfgp.fit(several, x, outputs, strategy="neighbors", max_evaluations=2, progress=False)


@pytest.mark.parametrize("has_gaps", [False, True])
def test_outputs_that_take_longer_than_the_limit_are_told_before_and_fitted_once(monkeypatch, has_gaps):
    """No kernels are compared, of which each would learn the covariance of the outputs."""
    fits, condition = [], WeightSpaceGP.condition
    monkeypatch.setattr(choice, "compare", lambda *_, **options: pytest.fail("a covariance of outputs for a kernel"))
    monkeypatch.setattr(costs, "spectrum_seconds", lambda size: 100.0)
    monkeypatch.setattr(WeightSpaceGP, "condition", lambda self, *data: fits.append(0) or condition(self, *data))
    x, y = rows(60)
    several = torch.stack([y, y.square(), 1.0 - y], dim=-1)
    if has_gaps:
        several[::7, 1] = math.nan
    with pytest.warns(UserWarning, match=r"time_limit=2 s is too short for the covariance of so many targets"):
        RandomFeatureGPRegressor(time_limit=2.0, num_features=8, random_state=0).fit(x.numpy(), several.numpy())
    assert len(fits) == 1


@pytest.mark.parametrize("block_size", [None, 32])
def test_blocks_learn_their_noise_after_the_limit_too(block_size):
    x, y = rows()
    noisy = y + 3.0 * torch.randn(ROWS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    kernel = rfgp.approximate(ScaleKernel(RBFKernel()).double(), 8, method="landmarks", train_inputs=x, seed=0)
    late = WeightSpaceGP(kernel, GaussianLikelihood().double(), block_size=block_size)
    summary = rfgp.fit(late, x, noisy, strategy="blocks", time_limit=1e-6, progress=False)
    assert summary.evaluations > 0
    assert 6.0 < float(late.likelihood.noise) < 13.0


SEARCH, PREDICT, BUILD = 2.0**-6, 2.0**-7, 8.0
"""Seconds of a search for those near a row, of its log density, and of what the first search prepares."""


@pytest.fixture
def tuned(clock, monkeypatch):
    """Makes a tuning by rows given those near them, every part of which moves the clock."""
    groups, score = NearRows.groups, CompositeLikelihood.score

    def search(self, kernel, rows, size):
        clock.now += SEARCH * len(rows) + (BUILD if self._scales is None else 0.0)
        return groups(self, kernel, rows, size)

    def predict(self):
        clock.now += PREDICT * len(self.groups)
        return score(self)

    def ascend(self, point, rows):
        count = len(self.objective.groups)
        clock.now += 3.0 * PREDICT * count
        clock.evaluations.append(count)
        slope = -np.logspace(0, 4, len(point)) * (point - 1.0)
        value = float(0.5 * slope @ (point - 1.0))
        return value, slope, value

    monkeypatch.setattr(NearRows, "groups", search)
    monkeypatch.setattr(CompositeLikelihood, "score", predict)
    monkeypatch.setattr(Maximization, "evaluate", ascend)

    def make(limit):
        x, y = rows(2100)
        objective = NeighborObjective(model(), x, y, None)
        made = tuning.Tuning(objective.observations(), timing.Deadline(limit))
        return made, session.Training(objective, False, 100, made.deadline)

    return make


def test_rows_of_a_tuning_are_as_many_as_their_searches_and_evaluations_have_time_for(clock, tuned, monkeypatch):
    """Costs a row are measured on 128 rows, without what the first search prepares."""
    limit, evaluations = 96.0, 8
    made, training = tuned(limit)
    measuring = BUILD + 129 * SEARCH + 129 * PREDICT
    assert clock.now == measuring
    assert len(made.held) == int(0.1 * (limit - measuring) / (SEARCH + PREDICT))
    training.follow(made.stages((tuning.PlannedStage(3000, evaluations, True),)))
    starting = 128 * (SEARCH + 4 * PREDICT)
    rows_of_stage = int((limit - measuring - starting) / (SEARCH + 3.0 * evaluations * PREDICT))
    assert set(clock.evaluations) == {rows_of_stage}
    assert 0.8 * limit <= clock.now <= 1.2 * limit


def test_a_tuning_judges_no_fewer_rows_than_can_decide_and_makes_its_first_stage_alone(clock, tuned):
    made, training = tuned(16.0)
    assert len(made.held) == 256
    training.follow(made.stages((tuning.PlannedStage(3000, 4, True), tuning.PlannedStage(3000, 4, True))))
    assert clock.evaluations == [256] and len(training.stages) == 1


def test_a_stage_with_a_share_of_too_few_rows_leaves_time_for_the_next(clock, tuned):
    """It takes the fewest rows, not all the time that is left, without which each lengthscale is not learned at all."""
    made, training = tuned(64.0)
    training.follow(made.stages((tuning.PlannedStage(3000, 4, True), tuning.PlannedStage(3000, 4, True))))
    assert set(clock.evaluations) == {256} and len(training.stages) == 2


def test_the_covariance_of_outputs_with_missing_values_is_learned_in_time(clock, tuned):
    limit, (x, y) = 400.0, rows(2100)
    outputs = torch.stack([y, y.square(), 1.0 - y], dim=-1)
    outputs[::7, 1] = math.nan
    kernel = MultitaskKernel(RBFKernel(), num_tasks=3, rank=3).double()
    several = WeightSpaceGP(
        rfgp.approximate(kernel, 4, input_dim=1, seed=0), MultitaskGaussianLikelihood(3).double(), None
    )
    summary = rfgp.fit(several, x, outputs, strategy="neighbors", time_limit=limit, progress=False)
    assert 0.6 * limit <= clock.now <= 1.2 * limit
    assert len(summary.stages) > 2


def test_a_fit_that_is_not_made_takes_no_time(clock):
    objective = UnconditionedObjective(model(), *rows(2100), None)
    assert session.Training(objective, False, 100, timing.Deadline(1e4)).fit_seconds == 0.0


def test_what_a_fit_takes_is_measured_on_more_rows_where_these_are_quick(monkeypatch, clock):
    """Ten seconds that any fit takes are no ten seconds for every 256 rows."""
    monkeypatch.setattr(
        objectives, "log_evidence", lambda _, data: clock.spend(1000 + len(data.x), False) or torch.zeros(())
    )
    objective = objectives.WeightSpaceObjective(model(), *rows(20_000), None)
    assert costs.fit_seconds(objective, timing.Deadline(4e3)) == pytest.approx((12.56, 210.0))


def test_the_fit_of_a_size_is_counted_once(monkeypatch):
    """The search has what the two fits leave, to the rows that teach and to those held out; it makes the first."""
    monkeypatch.setattr(model_size, "condition_seconds", lambda *args: 2.0)

    def make(size):
        kernel = rfgp.approximate(RBFKernel(), size.num_features, input_dim=1, method="fourier", seed=0)
        return WeightSpaceGP(kernel, GaussianLikelihood())

    x, y = (part.float() for part in rows(20))
    limit = timing.Deadline.after(10.0)
    found = model_size.timed_size(lambda size: size, make, x, y, limit, 1.0, takes_evidence=False)
    assert 6.0 < found.training_seconds <= 7.0


def test_features_of_classes_are_not_tried_where_their_fits_take_longer_than_there_is_time(monkeypatch):
    monkeypatch.setattr(labels, "condition_seconds", lambda *_: 100.0, raising=False)
    monkeypatch.setattr(labels, "choose_alpha", lambda *_: pytest.fail("features were fitted"))
    x, y = rows(1400)
    made = RandomFeatureGPClassifier(kernel="rbf", time_limit=60.0, max_evaluations=4, random_state=0)
    assert made.fit(x.numpy(), y.numpy() > 0.0).score(x.numpy(), y.numpy() > 0.0) > 0.9


def test_sizes_are_measured_where_their_fits_have_time_afterwards(monkeypatch, clock):
    """Of few rows a measurement takes as long as a fit."""

    def seconds(made, x, y, probe):
        took = 0.1 * (made.covar_module.num_scalar_features / 256) ** 2
        clock.now += took
        return took

    def make(size):
        kernel = rfgp.approximate(RBFKernel(), size.num_features, input_dim=1, method="fourier", seed=0)
        return WeightSpaceGP(kernel, GaussianLikelihood())

    monkeypatch.setattr(model_size, "condition_seconds", seconds)
    monkeypatch.setattr(WeightSpaceGP, "condition", lambda self, *data: self)
    x, y = (part.float() for part in rows(20))
    limit = timing.Deadline.after(6.0)
    found = model_size.timed_size(lambda size: size, make, x, y, limit, 0.0, takes_evidence=False)
    assert found.num_features == 1024
    assert clock.now + 2 * found.fit_seconds <= 6.0


def test_no_rows_are_left_out_where_that_takes_longer_than_there_is_time(monkeypatch):
    trained = RandomFeatureGPRegressor._trained
    monkeypatch.setattr(RandomFeatureGPRegressor, "_trained", lambda *args: (trained(*args)[0], 5.0))
    monkeypatch.setattr(WeightSpaceGP, "leave_one_out", lambda *_, **options: pytest.fail("rows were left out"))
    x, y = rows(60)
    made = RandomFeatureGPRegressor(kernel="rbf", time_limit=30.0, max_evaluations=2, random_state=0)
    assert made.fit(x.numpy(), y.numpy()).predict(x.numpy()).shape == (60,)
