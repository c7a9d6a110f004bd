"""A strategy that is written outside of the package, as CONTRIBUTING.md says, trains every model at once."""

from pathlib import Path

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood, GaussianLikelihood, SoftmaxLikelihood
from problems import ExactModel

import rfgp
from rfgp.likelihoods import PoissonLikelihood
from rfgp.training import CompositeLikelihood, Stage, Strategy
from rfgp.training.objectives import WeightSpaceObjective

pytestmark = [pytest.mark.usefixtures("float64_default"), pytest.mark.filterwarnings("ignore:KL .* per point")]

X = 2.0 * torch.rand(120, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = torch.sin(3.0 * X[:, 0]) + 0.1 * torch.randn(120, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


class PairsThenBlocks(Strategy):
    """Rows given the row before in one direction, then four blocks along it, then everything."""

    num_blocks = 4

    def stages(self, training):
        order = training.objective.x[:, 0].argsort()
        pairs = torch.stack([order[:-1], order[1:]], dim=-1)
        yield Stage(CompositeLikelihood(training.observations, pairs, targets=1), "pairs", evaluations=8)
        blocks = order.reshape(self.num_blocks, -1)
        yield Stage(CompositeLikelihood(training.observations, blocks), "blocks", evaluations=8)
        yield Stage(training.objective, "all", evaluations=20)


class BlocksAlone(PairsThenBlocks):
    def stages(self, training):
        blocks = training.objective.x[:, 0].argsort().reshape(self.num_blocks, -1)
        yield Stage(CompositeLikelihood(training.observations, blocks), "blocks", evaluations=8)


class OneBlock(BlocksAlone):
    num_blocks = 1


class SomeBlocks(BlocksAlone):
    def __init__(self, num_blocks):
        self.num_blocks = num_blocks


class EvidenceTwice(Strategy):
    def stages(self, training):
        yield Stage(training.objective, "lengthscales", evaluations=4, is_tied=True)
        yield Stage(training.objective, "all", evaluations=4)


def strategy_of_the_guide():
    """The one in CONTRIBUTING.md, as a file of its own."""
    guide = (Path(__file__).parents[2] / "CONTRIBUTING.md").read_text(encoding="utf-8")
    names = {}
    exec(guide.partition("```python\n")[2].partition("```")[0], names)
    return names["PairsThenAll"]()


def features():
    return rfgp.approximate(ScaleKernel(RBFKernel(ard_num_dims=2)), 24, method="landmarks", train_inputs=X, seed=0)


MODELS = {
    "weight space": lambda: (rfgp.WeightSpaceGP(features(), GaussianLikelihood()), Y),
    "exact": lambda: (ExactModel(X, Y, GaussianLikelihood(), ScaleKernel(RBFKernel())), Y),
    "laplace": lambda: (rfgp.models.LaplaceGP(features(), BernoulliLikelihood()), (Y > 0.0).double()),
    "laplace of classes": lambda: (
        rfgp.models.LaplaceGP(features(), SoftmaxLikelihood(2, 2, mixing_weights=False)),
        (Y > 0.0).long(),
    ),
    "variational": lambda: (rfgp.models.WeightSpaceVariationalGP(features(), PoissonLikelihood()), (Y > 0.0).double()),
    "heteroscedastic": lambda: (rfgp.models.HeteroscedasticGP(features(), features()), Y),
}


@pytest.mark.parametrize("name", MODELS)
def test_every_model_takes_stages_of_its_evidence(name):
    model, y = MODELS[name]()
    summary = rfgp.fit(model, X, y, strategy=EvidenceTwice(), progress=False)
    assert [(stage.name, stage.rows) for stage in summary.stages] == [("lengthscales", "all rows"), ("all", "all rows")]
    assert 2 <= summary.evaluations <= 8 and torch.isfinite(torch.tensor(summary.log_marginal_likelihood))
    assert "parameters from" not in summary.message


def test_a_strategy_may_have_settings_and_a_time_limit():
    model, y = MODELS["weight space"]()
    summary = rfgp.fit(model, X, y, strategy=SomeBlocks(3), time_limit=1e-6, progress=False)
    assert summary.stages[0].rows == "3 x 40 rows"
    assert torch.isfinite(model.posterior(X).mean).all()


@pytest.mark.parametrize("name", ["weight space", "exact"])
def test_regressions_take_composite_likelihoods(name):
    model, y = MODELS[name]()
    summary = rfgp.fit(model, X, y, strategy=PairsThenBlocks(), progress=False)
    seen = [(stage.name, stage.rows) for stage in summary.stages]
    assert seen == [("pairs", "119 rows given 1 other"), ("blocks", "4 x 30 rows"), ("all", "all rows")]
    assert 0.005 < float(model.likelihood.noise) < 0.03


def test_the_guide_has_a_strategy_that_works_at_once():
    model, y = MODELS["weight space"]()
    summary = rfgp.fit(model, X, y, strategy=strategy_of_the_guide(), progress=False)
    assert [stage.name for stage in summary.stages] == ["pairs", "evidence"]
    assert 0.005 < float(model.likelihood.noise) < 0.03


def test_the_end_of_a_strategy_without_all_rows_is_a_model_of_all():
    model, y = MODELS["weight space"]()
    summary = rfgp.fit(model, X, y, strategy=BlocksAlone(), progress=False)
    assert [stage.name for stage in summary.stages] == ["blocks", "feature model", "noise, scale and mean"]
    assert summary.message == 'parameters from the stage "blocks"'
    assert model.posterior(X).mean.sub(Y).square().mean() < 0.02


@pytest.mark.parametrize(
    ("name", "strategy"),
    [("laplace", BlocksAlone), ("laplace", OneBlock), ("laplace of classes", OneBlock)],
)
def test_blocks_of_a_laplace_model_have_its_evidence(name, strategy):
    model, y = MODELS[name]()
    summary = rfgp.fit(model, X, y, strategy=strategy(), progress=False)
    assert [stage.name for stage in summary.stages] == ["blocks", "feature model"]
    assert summary.evaluations == 8 or summary.converged


@pytest.mark.parametrize(
    ("name", "strategy", "message"),
    [
        ("laplace", PairsThenBlocks, "expected all rows of a group as targets for a LaplaceGP"),
        ("laplace of classes", BlocksAlone, "expected one group of rows for several latent functions"),
        ("variational", BlocksAlone, "for the likelihood of the exact kernel on some rows"),
        ("heteroscedastic", BlocksAlone, "for the likelihood of the exact kernel on some rows"),
    ],
)
def test_what_a_model_has_no_likelihood_for_is_refused_and_leaves_it(name, strategy, message):
    model, y = MODELS[name]()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match=message):
        rfgp.fit(model, X, y, strategy=strategy(), progress=False)
    assert all(torch.equal(new, old) for new, old in zip(model.parameters(), before, strict=True))


def strategy_of(make):
    class Made(Strategy):
        def stages(self, training):
            return make(training)

    return Made()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda training: [], "expected a strategy of at least one stage"),
        (lambda training: [training.objective], "expected a Stage"),
        (lambda training: [Stage("evidence")], "expected training.objective or a CompositeLikelihood"),
        (lambda training: [Stage(training.objective, evaluations=0)], "evaluations"),
        (lambda training: None, "expected stages"),
        (lambda training: [Stage(CompositeLikelihood(training.observations, [0, 1]))], "numbers of the rows of groups"),
        (
            lambda training: [Stage(CompositeLikelihood(training.observations, torch.tensor([[0, 120]])))],
            "expected numbers of rows from 0 to 119, got 0 to 120",
        ),
        (
            lambda training: [Stage(CompositeLikelihood(training.observations, torch.tensor([[0, 1]]), targets=3))],
            "expected at most 2 targets",
        ),
    ],
)
def test_mistakes_of_a_strategy_are_told(make, message):
    model, y = MODELS["weight space"]()
    before = [parameter.detach().clone() for parameter in model.parameters()]
    with pytest.raises(ValueError, match=message):
        rfgp.fit(model, X, y, strategy=strategy_of(make), progress=False)
    assert all(torch.equal(new, old) for new, old in zip(model.parameters(), before, strict=True))


def test_stages_without_an_end_end_with_the_evaluations():
    model, y = MODELS["weight space"]()
    endless = strategy_of(lambda training: iter(lambda: Stage(training.objective, evaluations=3), None))
    summary = rfgp.fit(model, X, y, strategy=endless, max_evaluations=10, progress=False)
    assert [stage.evaluations for stage in summary.stages] == [3, 3, 3, 1]


def test_what_a_strategy_fixes_learns_again_after_an_error(monkeypatch):
    model, y = MODELS["weight space"]()
    noise = model.likelihood.noise_covar.raw_noise

    def fail(*_):
        raise ValueError("expected nothing, got an error; go on")

    def stages(training):
        noise.requires_grad_(False)
        try:
            yield Stage(training.objective)
        finally:
            noise.requires_grad_(True)

    monkeypatch.setattr(WeightSpaceObjective, "evidence", fail)
    with pytest.raises(ValueError, match="expected nothing") as error:
        rfgp.fit(model, X, y, strategy=strategy_of(stages), progress=False)
    assert error is not None and noise.requires_grad
