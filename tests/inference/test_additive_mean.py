"""The mean function of single inputs: a dense Gaussian process, and what models make of it."""

import copy

import gpytorch
import pytest
import torch
from gpytorch.means import ConstantMean, MultitaskMean

import rfgp
from rfgp.inference.sums import additive_mean
from rfgp.inference.sums.additive_mean import AdditiveMean
from rfgp.inference.sums.mean_basis import check_mean, constant_part
from rfgp.models.spectral_evidence import learn_from_statistics
from rfgp.training import Subset
from rfgp.training.exact_regression import exact_regression
from rfgp.training.neighbors import NeighborObjective
from rfgp.training.noise_check import advice_on_features

RANDOM = torch.Generator().manual_seed(0)
FEW = torch.randint(0, 8, (40, 2), generator=RANDOM).double() / 2.0
OF_FEW = FEW[:, 0].sin() - 0.3 * FEW[:, 1] + 0.2 * torch.randn(40, generator=RANDOM, dtype=torch.float64)
X = torch.randn(300, 2, generator=RANDOM, dtype=torch.float64)
Y = 1.0 + 2.0 * X[:, 0].tanh() + X[:, 1] + (3.0 * X.sum(-1)).sin()
MEAN = AdditiveMean(X, Y)


def model_with(mean, block_size=None):
    kernel = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel(2.5, ard_num_dims=2)).double()
    wide = rfgp.approximate(kernel, 64, method="landmarks", train_inputs=X, seed=0)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    return rfgp.WeightSpaceGP(wide, likelihood, copy.deepcopy(mean), block_size=block_size)


def pair(block_size=None):
    """A model with the additive mean, and one with a constant for what the functions leave over."""
    constant = ConstantMean().double().initialize(constant=MEAN.constant.detach())
    return model_with(MEAN, block_size), model_with(constant, block_size), Y - MEAN.function(X)


def parameters(model):
    return torch.cat([value.detach().flatten() for _, value in sorted(model.named_parameters())])


def additive_kernel(x, z):
    matern = gpytorch.kernels.MaternKernel(2.5).double().initialize(lengthscale=1.0)
    return sum(matern(a.unsqueeze(-1), b.unsqueeze(-1)).to_dense() for a, b in zip(x.mT, z.mT, strict=True))


@torch.no_grad()
def dense(x, y, new):
    """Gain, and the mean and variance of level and functions at new inputs, with a flat prior of the level."""
    count, ones, found = len(y), torch.ones(len(y), dtype=torch.float64), []
    for ratio in additive_mean._RATIOS:
        inverse = torch.linalg.inv(ratio * additive_kernel(x, x) + torch.eye(count, dtype=torch.float64))
        weight = ones @ inverse @ ones
        level = inverse @ ones / weight
        projected = inverse - weight * torch.outer(level, level)
        square = y @ projected @ y
        log_det = weight.log() - torch.logdet(inverse) - torch.tensor(count).log()
        gain = -0.5 * ((count - 1) * (square / (y - y.mean()).square().sum()).log() + log_det) / count
        found.append((gain, ratio, square / (count - 1), projected, level, 1.0 / weight))
    gain, ratio, noise, projected, level, of_level = max(found, key=lambda each: each[0])
    cross = ratio * additive_kernel(new, x)
    variance = ratio * new.shape[-1] - (cross @ projected * cross).sum(-1) - 2.0 * cross @ level + of_level
    return gain, y @ level + cross @ projected @ y, noise * variance, noise / count


def test_with_all_values_as_knots_it_is_a_dense_gaussian_process():
    new = torch.cat([FEW[:5] + 0.2, torch.tensor([[50.0, -50.0]], dtype=torch.float64)])
    mean = AdditiveMean(FEW, OF_FEW)
    gain, expected, variance, of_level = dense(FEW, OF_FEW, new)
    assert mean.gain == pytest.approx(float(gain), abs=1e-8)
    torch.testing.assert_close(mean(new).detach(), expected, rtol=0, atol=1e-8)
    torch.testing.assert_close(mean.variance(new), variance - of_level, rtol=0, atol=1e-8)


def test_knots_between_which_rows_are_few_leave_little_variance():
    x = torch.cat([X, 8.0 + torch.arange(5.0, dtype=torch.float64).unsqueeze(-1).expand(-1, 2)])
    mean = AdditiveMean(x, x[:, 0] + 0.1 * x[:, 1].sin())
    basis = mean._kernels(x) @ mean.whitening
    assert len(mean.knots) <= 2 * additive_mean._MOST_KNOTS < len(x)
    assert float((2.0 - basis.square().sum(-1)).mean()) < 0.02  # 0.05 between quantiles


def test_far_from_all_rows_functions_are_zero_and_unknown():
    far = torch.full((1, 2), 1e3, dtype=torch.float64)
    assert float(MEAN.function(far)) == 0.0
    of_level = float((MEAN.center @ MEAN.root).square().sum())
    assert float(MEAN.variance(far)) == pytest.approx(2.0 * float(MEAN.prior_variance) + of_level)
    assert float(MEAN.variance(far)) > 0.1 * float(Y.var())
    assert float(MEAN.variance(X).mean()) < 0.01 * float(MEAN.variance(far))


def test_blocks_of_rows_and_other_dtypes_change_nothing(monkeypatch):
    monkeypatch.setattr(additive_mean, "_ROWS", 7)
    again = AdditiveMean(X, Y)
    torch.testing.assert_close(again(X), MEAN(X), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(again.variance(X), MEAN.variance(X), rtol=1e-9, atol=1e-9)
    single = again.function(X.float().reshape(30, 10, 2))
    assert single.dtype == torch.float32 and single.shape == (30, 10)
    torch.testing.assert_close(single.flatten().double(), MEAN.function(X), rtol=0, atol=1e-5)


def test_constant_columns_have_no_functions():
    wider = torch.cat([X, torch.full_like(X[:, :1], 3.0)], dim=-1)
    torch.testing.assert_close(AdditiveMean(wider, Y)(wider), MEAN(X))


@pytest.mark.parametrize("block_size", [None, 50])
def test_a_model_with_it_is_one_of_what_the_functions_leave_over(block_size):
    model, other, residual = pair(block_size)
    new = X[:20] + 0.1
    with torch.no_grad():
        model.condition(X[:200], Y[:200]).update(X[200:], Y[200:])
        other.condition(X[:200], residual[:200]).update(X[200:], residual[200:])
        torch.testing.assert_close(model.log_marginal_likelihood(), other.log_marginal_likelihood())
        torch.testing.assert_close(model.posterior(new).mean, other.posterior(new).mean + MEAN.function(new))
        torch.testing.assert_close(model.posterior(new).variance, other.posterior(new).variance)
        left_out, expected = model.leave_one_out(X, Y), other.leave_one_out(X, residual)
        torch.testing.assert_close(left_out.mean, expected.mean + MEAN.function(X))
        torch.testing.assert_close(left_out.variance, expected.variance)


def test_rows_are_known_again_though_its_values_depend_on_the_rows_beside_them(monkeypatch):
    """Products of other numbers of rows differ in the last bits."""
    exact = AdditiveMean.function
    monkeypatch.setattr(AdditiveMean, "function", lambda self, x: exact(self, x) * (1.0 + 1e-15 * len(x)))
    model = model_with(MEAN, block_size=32)
    model.condition(X[:200], Y[:200])
    model.update(X[200:], Y[200:])
    assert model.leave_one_out(X, Y).mean.shape == (300,)
    model.downdate(X[:50], Y[:50])
    with pytest.raises(ValueError, match="expected rows that the model has"):
        model.leave_one_out(X, Y)


@pytest.mark.parametrize("strategy", [Subset(), rfgp.training.Evidence(), rfgp.training.Neighbors()])
def test_what_it_leaves_over_teaches_the_parameters_and_the_constant(strategy):
    model, other, residual = pair()
    for each, y in ((model, Y), (other, residual)):
        rfgp.fit(each, X, y, strategy=strategy, max_evaluations=12, progress=False)
    torch.testing.assert_close(parameters(model), parameters(other), rtol=1e-5, atol=1e-5)
    assert not any(parameter is buffer for parameter in model.parameters() for buffer in MEAN.buffers())


def test_near_rows_and_features_are_compared_on_what_it_leaves_over():
    advice = []
    for model, y in zip(pair()[:2], (Y, Y - MEAN.function(X)), strict=True):
        rfgp.fit(model, X, y, strategy=Subset(), max_evaluations=12, progress=False)
        advice.append(advice_on_features(exact_regression(NeighborObjective(model, X, y, None))))
    assert advice[0] == advice[1] and "mean log densities" in advice[0]


def test_statistics_teach_the_constant_alone():
    model, other, residual = pair()
    for each, y in ((model, Y + 0.5), (other, residual + 0.5)):
        with torch.no_grad():
            each.condition(X, y)
        assert learn_from_statistics(each)
    torch.testing.assert_close(parameters(model), parameters(other), rtol=1e-4, atol=1e-4)


def test_files_have_it(tmp_path):
    model, _, _ = pair()
    rfgp.save(model.condition(X, Y), tmp_path / "model.zip")
    loaded = rfgp.load(tmp_path / "model.zip")
    torch.testing.assert_close(loaded.posterior(X).mean, model.posterior(X).mean)
    torch.testing.assert_close(loaded.mean_module.variance(X), MEAN.variance(X))


def test_several_outputs_and_operators_refuse_it():
    with pytest.raises(ValueError, match="expected an AdditiveMean for one output, got one in a MultitaskMean"):
        check_mean(MultitaskMean([MEAN, ConstantMean()], num_tasks=2))
    with pytest.raises(ValueError, match="expected a zero or constant mean for operators, got a AdditiveMean"):
        constant_part(MEAN, 1, torch.device("cpu"))
