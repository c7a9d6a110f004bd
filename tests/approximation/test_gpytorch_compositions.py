"""GPyTorch's own compositions of approximated kernels in an ExactGP keep features, or say once that they do not."""

from __future__ import annotations

import copy
import warnings

import gpytorch
import pytest
import torch
from gpytorch.distributions import MultitaskMultivariateNormal
from gpytorch.kernels import (
    AdditiveKernel,
    IndexKernel,
    LCMKernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.mlls import ExactMarginalLogLikelihood
from linear_operator import to_dense
from linear_operator.operators import LowRankRootLinearOperator, RootLinearOperator
from problems import ExactModel

import rfgp
from rfgp.approximation import FeatureKernel as Featured
from rfgp.approximation import with_features
from rfgp.approximation.families import MapFamily
from rfgp.approximation.hooks.feature_operator import FeatureLinearOperator
from rfgp.approximation.hooks.noisy_features import NoisyFeaturesLinearOperator
from rfgp.approximation.hooks.prediction import FeaturePredictionStrategy
from rfgp.inference.posterior.covariance import ResidualCovariance

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS, WIDTH = 60, 8


def inputs(num_rows=ROWS, seed=0):
    """Two columns, and the number of a task."""
    x = torch.rand(num_rows, 3, generator=torch.Generator().manual_seed(seed))
    x[:, 2] = torch.arange(num_rows) % 2
    return x


def targets(x):
    return torch.sin(5.0 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.1 * torch.cos(40.0 * x[:, 1])


def smooth(width=WIDTH, seed=1, columns=3):
    return rfgp.approximate(ScaleKernel(RBFKernel()), width, input_dim=columns, seed=seed)


def rough(width=6, seed=2):
    return rfgp.approximate(MaternKernel(nu=1.5), width, input_dim=3, seed=seed)


def tasks():
    torch.manual_seed(0)
    return IndexKernel(2, rank=1, active_dims=[2])


def several(make, *args, **options):
    torch.manual_seed(0)
    return make(*args, **options)


KEPT = {
    "exact first": lambda: LinearKernel() + smooth(),
    "scaled exact first": lambda: ScaleKernel(LinearKernel()) + smooth(),
    "not made yet": lambda: LinearKernel() + rfgp.approximate(MaternKernel(), WIDTH, seed=4),
    "additive": lambda: AdditiveKernel(smooth(), rough()),
    "scaled additive": lambda: ScaleKernel(AdditiveKernel(smooth(), rough())),
    "scaled sum": lambda: ScaleKernel(smooth() + rough()),
    "product": lambda: ProductKernel(smooth(), rough()),
    "sum with a product": lambda: AdditiveKernel(LinearKernel(), ProductKernel(smooth(), rough())),
    "product, exact first": lambda: LinearKernel() * smooth(),
    "task indices first": lambda: tasks() * smooth(),
    "sum with task indices": lambda: AdditiveKernel(tasks() * smooth(), LinearKernel()),
    "scaled tasks": lambda: ScaleKernel(several(MultitaskKernel, smooth(), num_tasks=2)),
    "coregionalization": lambda: several(LCMKernel, [smooth(), rough()], num_tasks=2, rank=2),
}
LOST = {
    "sum": lambda: AdditiveKernel(smooth(), RBFKernel()),
    "exact first": lambda: RBFKernel() + smooth(),
    "product of many": lambda: ProductKernel(smooth(64), rough(32)),
    "scaled": lambda: ScaleKernel(ProductKernel(smooth(64), rough(64))),
}
MANY_OUTPUTS = ("scaled tasks", "coregionalization")


def matrix(kernel, x, z):
    """The dense kernel matrix, by the definition of every part."""
    if isinstance(kernel, Featured):
        return kernel.features(x) @ kernel.features(z).mT
    if isinstance(kernel, ScaleKernel):
        return kernel.outputscale * matrix(kernel.base_kernel, x, z)
    if isinstance(kernel, AdditiveKernel):
        return sum(matrix(part, x, z) for part in kernel.kernels)
    if isinstance(kernel, LCMKernel):
        return sum(matrix(part, x, z) for part in kernel.covar_module_list)
    if isinstance(kernel, ProductKernel):
        return torch.stack([matrix(part, x, z) for part in kernel.kernels]).prod(0)
    if isinstance(kernel, MultitaskKernel):
        return torch.kron(matrix(kernel.data_covar_module, x, z), to_dense(kernel.task_covar_module.covar_matrix))
    if isinstance(kernel, IndexKernel):
        return to_dense(kernel.covar_matrix)[x[:, 2].long()][:, z[:, 2].long()]
    if isinstance(kernel, LinearKernel):
        return kernel.variance * x @ z.mT
    return kernel(x, z).to_dense()


class SeveralOutputs(ExactModel):
    """A GPyTorch model of several outputs."""

    def forward(self, x):
        mean = torch.stack([self.mean_module(x)] * 2, dim=-1)
        return MultitaskMultivariateNormal(mean, self.covar_module(x))


def model_with(kernel, is_several=False):
    x = inputs()
    if not is_several:
        return ExactModel(x, targets(x), GaussianLikelihood(), kernel)
    y = torch.stack([targets(x), targets(1.0 - x)], dim=-1)
    return SeveralOutputs(x, y, MultitaskGaussianLikelihood(num_tasks=2), kernel)


def evidence(model):
    model.train()
    return ExactMarginalLogLikelihood(model.likelihood, model)(model(*model.train_inputs), model.train_targets)


def noise(model):
    x, y = model.train_inputs[0], model.train_targets
    if y.dim() == 1:
        return model.likelihood.noise * torch.eye(len(x))
    per_task = model.likelihood.noise + model.likelihood.task_noises
    return torch.kron(torch.eye(len(x)), torch.diag(per_task))


def dense_evidence(model):
    x, y = model.train_inputs[0], model.train_targets
    covariance = matrix(model.covar_module, x, x) + noise(model)
    mean = model.mean_module.constant.expand(y.numel())
    return torch.distributions.MultivariateNormal(mean, covariance).log_prob(y.reshape(-1)) / y.numel()


def dense_prediction(model, z):
    x, y, kernel = model.train_inputs[0], model.train_targets, model.covar_module
    cross, noisy = matrix(kernel, z, x), matrix(kernel, x, x) + noise(model)
    constant = model.mean_module.constant
    mean = constant + cross @ torch.linalg.solve(noisy, y.reshape(-1) - constant)
    return mean, matrix(kernel, z, z) - cross @ torch.linalg.solve(noisy, cross.mT)


def gradients(value, model):
    model.zero_grad()
    value.backward()
    return [parameter.grad for parameter in model.parameters()]


def close(actual, expected):
    torch.testing.assert_close(actual, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("log_prob", [True, False])
@pytest.mark.parametrize("name", KEPT)
def test_compositions_keep_features_and_equal_the_dense_model(name, log_prob):
    model, z = model_with(KEPT[name](), name in MANY_OUTPUTS), inputs(7, seed=3)
    with warnings.catch_warnings(), gpytorch.settings.fast_computations(log_prob=log_prob):
        warnings.simplefilter("error")
        value = evidence(model)
        found = gradients(value, model)
        model.eval()
        predicted = model(z)
    assert isinstance(model.prediction_strategy, FeaturePredictionStrategy)
    assert isinstance(model.prediction_strategy.lik_train_train_covar, NoisyFeaturesLinearOperator)
    expected = dense_evidence(model)
    close(value, expected)
    close(found, gradients(expected, model))
    mean, covariance = dense_prediction(model, z)
    close(predicted.mean.reshape(-1), mean)
    close(predicted.covariance_matrix, covariance)
    close(predicted.variance.reshape(-1), covariance.diagonal())


@pytest.mark.parametrize("data", [smooth, lambda: LinearKernel() + smooth()])
def test_several_tasks_train_by_features_and_say_that_predictions_are_dense(data):
    model, z = model_with(several(MultitaskKernel, data(), num_tasks=2), True), inputs(7, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = evidence(model)
    expected = dense_evidence(model)
    close(gradients(value, model), gradients(expected, model))
    close(value, expected)
    with pytest.warns(UserWarning, match="MultitaskKernel is dense.*with_features"):
        predicted = model.eval()(z)
    mean, covariance = dense_prediction(model, z)
    close(predicted.mean.reshape(-1), mean)
    close(predicted.covariance_matrix, covariance)


@pytest.mark.parametrize("is_trained", [True, False])
@pytest.mark.parametrize("name", LOST)
def test_what_loses_features_says_so_once_and_equals_the_dense_model(name, is_trained):
    model, z = model_with(LOST[name]()), inputs(7, seed=3)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(2):
            value = evidence(model) if is_trained else None
            predicted = model.eval()(z)
            model(z + 0.1)
    (warning,) = [w for w in found if "dense" in str(w.message)]
    assert f"{type(model.covar_module).__name__} is dense, at O(N^3)" in str(warning.message)
    assert "rfgp.approximation.with_features(kernel)" in str(warning.message)
    mean, covariance = dense_prediction(model, z)
    close(predicted.mean, mean)
    close(predicted.covariance_matrix, covariance)
    if is_trained:
        close(value, dense_evidence(model))


def test_every_kernel_that_loses_features_has_its_own_warning():
    for _ in range(2):
        with pytest.warns(UserWarning, match="AdditiveKernel is dense"):
            evidence(model_with(AdditiveKernel(smooth(), RBFKernel())))


def test_the_warning_of_an_operator_is_the_only_one():
    with pytest.warns(UserWarning, match="RBFKernel has no features"):
        kernel = smooth() + RBFKernel()
    for composed in (kernel, ScaleKernel(kernel)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            evidence(model_with(composed))


def test_the_remedy_keeps_features():
    with pytest.warns(UserWarning, match="ProductKernel is dense"):
        evidence(model_with(ProductKernel(smooth(48), rough(48))))
    kernel = with_features(ProductKernel(smooth(48), rough(48)))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = model_with(ScaleKernel(kernel))
        evidence(model)
        model.eval()(inputs(7, seed=3))
    assert isinstance(model.prediction_strategy.lik_train_train_covar, NoisyFeaturesLinearOperator)


def test_no_warning_without_features():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = model_with(RBFKernel() + LinearKernel() * MaternKernel())
        evidence(model)
        model.eval()(inputs(7, seed=3))


@pytest.mark.parametrize("name", ["exact first", "additive", "task indices first"])
def test_a_second_prediction_makes_no_features_of_training_rows(name, monkeypatch):
    model, rows = model_with(KEPT[name]()).eval(), []
    model(inputs(7, seed=3))
    original = MapFamily._map_and_rows

    def counted(self, x):
        rows.append(x.shape[-2])
        return original(self, x)

    monkeypatch.setattr(MapFamily, "_map_and_rows", counted)
    model(inputs(7, seed=4)).variance.sum()
    assert set(rows) <= {7}


def test_new_weights_copies_and_further_rows_are_noticed():
    kernel, z = KEPT["exact first"](), inputs(7, seed=3)
    model = model_with(kernel).eval()
    with torch.no_grad():
        close(copy.deepcopy(model)(z).mean, model(z).mean)
        further = model.get_fantasy_model(z, targets(z))
        both = ExactModel(torch.cat([inputs(), z]), targets(torch.cat([inputs(), z])), model.likelihood, kernel)
        close(further(inputs(5, seed=4)).mean, dense_prediction(both, inputs(5, seed=4))[0])
        kernel.kernels[1].resample(torch.Generator().manual_seed(7))
        close(model(z).mean, dense_prediction(model, z)[0])


def test_features_follow_the_grad_mode_in_which_a_lazy_matrix_was_made():
    kernel = KEPT["exact first"]()
    with torch.no_grad():
        made = kernel(inputs())
    assert not made.evaluate_kernel().requires_grad
    made = kernel(inputs())
    with torch.no_grad():
        assert made.evaluate_kernel().requires_grad


def test_entries_of_several_outputs_are_those_of_the_dense_matrix():
    kernel, x, z = rfgp.approximate(tasks(), WIDTH, input_dim=3, seed=1), inputs(), inputs(seed=5)
    i, j = torch.arange(3), torch.arange(3).flip(0)
    for entries in (kernel(x).evaluate_kernel(), kernel(x, z)):
        dense = entries.to_dense()
        close(entries.diagonal(), dense.diagonal())
        close(entries[i, j], dense[i, j])


def test_batches_keep_features():
    shape = torch.Size([2])
    exact = ScaleKernel(RBFKernel(batch_shape=shape), batch_shape=shape)
    parts = [LinearKernel(batch_shape=shape), rfgp.approximate(exact, WIDTH, input_dim=3, seed=1)]
    kernel = AdditiveKernel(*parts)
    x = torch.stack([inputs(), inputs(seed=5)])
    found = kernel(x).evaluate_kernel()
    assert isinstance(found, FeatureLinearOperator)
    close(found.to_dense(), sum(part(x).to_dense() for part in parts))


class Hadamard(ExactModel):
    """GPyTorch's model of one task for each row: a matrix of the inputs times one of the tasks."""

    def __init__(self, x, y, kernel, first="inputs"):
        super().__init__((x[:, :2], x[:, 2:].long()), y, GaussianLikelihood(), kernel)
        self.task_covar_module, self.first = several(IndexKernel, 2, rank=1), first

    def forward(self, x, task):
        factors = self.covar_module(x), self.task_covar_module(task)
        product = factors[0].mul(factors[1]) if self.first == "inputs" else factors[1].mul(factors[0])
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), product)


@pytest.mark.parametrize("first", ["inputs", "tasks"])
def test_a_product_of_matrices_has_features(first):
    x, z = inputs(), inputs(7, seed=3)
    model = Hadamard(x, targets(x), smooth(columns=2), first)
    alone, task = model.covar_module, model.task_covar_module

    def product(a, b):
        tasks_of = to_dense(task.covar_matrix)[a[:, 2].long()][:, b[:, 2].long()]
        return alone.features(a[:, :2]) @ alone.features(b[:, :2]).mT * tasks_of

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = evidence(model)
    noisy, y = product(x, x) + noise(model), targets(x)
    mean = model.mean_module.constant.expand(len(y))
    expected = torch.distributions.MultivariateNormal(mean, noisy).log_prob(y) / len(y)
    close(value, expected)
    close(gradients(value, model), gradients(expected, model))
    predicted = model.eval()(z[:, :2], z[:, 2:].long())
    assert isinstance(model.prediction_strategy, FeaturePredictionStrategy)
    assert isinstance(model.prediction_strategy.lik_train_train_covar, NoisyFeaturesLinearOperator)
    solved = torch.linalg.solve(noisy, product(x, z)).mT
    close(predicted.mean, mean[0] + solved @ (y - mean))
    close(predicted.covariance_matrix, product(z, z) - solved @ product(x, z))


@torch.no_grad()
def test_a_factor_of_a_single_row_stands_for_all():
    x, kernel, tasks_of = inputs(), smooth(columns=2), several(IndexKernel, 2, rank=1)
    one, every = torch.tensor([[1]]), torch.ones(len(x), 1, dtype=torch.long)
    for first, second in ((one, one), (every, one), (one, every)):
        product = kernel(x[:, :2]).mul(tasks_of(first, second))
        close(product.to_dense(), kernel(x[:, :2]).to_dense() * to_dense(tasks_of.covar_matrix)[1, 1])


@torch.no_grad()
def test_predictions_by_a_product_of_matrices_have_what_landmarks_leave_over():
    x, far = inputs(), 50.0 + inputs(7, seed=3)
    few = rfgp.approximate(RBFKernel(), 5, method="landmarks", train_inputs=x[:, :2], seed=0)
    model = Hadamard(x, targets(x), few).eval()
    tasks_of_rows = torch.zeros(7, 1, dtype=torch.long)
    variance = model(far[:, :2], tasks_of_rows).variance
    close(variance, model.task_covar_module.covar_matrix.to_dense()[0, 0].expand(7))


class Additive(ExactModel):
    """GPyTorch's additive model: a batch of kernels, each of one column, whose matrices are added or multiplied."""

    def __init__(self, x, y, kernel, compose="sum"):
        super().__init__(x, y, GaussianLikelihood(), kernel)
        self.compose = compose

    def forward(self, x):
        matrices = self.covar_module(x.mT.unsqueeze(-1))
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), getattr(matrices, self.compose)(dim=-3))


def batch_of_kernels():
    kernel = RBFKernel(batch_shape=torch.Size([3]))
    kernel.lengthscale = torch.tensor([0.3, 0.5, 0.9]).reshape(3, 1, 1)
    return kernel


@pytest.mark.parametrize("is_batch", [True, False])
def test_predictions_by_a_sum_over_a_batch_have_what_landmarks_leave_over(is_batch):
    x, far = inputs(), 50.0 + inputs(7, seed=3)
    exact = batch_of_kernels() if is_batch else RBFKernel()
    few, every = (
        rfgp.approximate(exact, count, method="landmarks", train_inputs=x.mT.unsqueeze(-1), seed=0)
        for count in (5, len(x))
    )
    model = Additive(x, targets(x), few).eval()
    with torch.no_grad():
        close(model(far).variance, torch.full((7,), 3.0))
    assert isinstance(model.prediction_strategy, FeaturePredictionStrategy)
    near = x[:7] + 0.01
    with torch.no_grad():
        found, wanted = (Additive(x, targets(x), kernel).eval()(near) for kernel in (every, exact))
    torch.testing.assert_close(found.mean, wanted.mean, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.variance, wanted.variance, rtol=1e-2, atol=1e-3)


@pytest.mark.parametrize("method", ["landmarks", "fourier"])
def test_parameters_of_a_batch_are_learned_by_its_sum(method):
    x = inputs()
    exact = ScaleKernel(batch_of_kernels(), batch_shape=torch.Size([3]))
    kernel = rfgp.approximate(exact, 8, method=method, train_inputs=x.mT.unsqueeze(-1), seed=0)
    model = Additive(x, targets(x), kernel)
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)(model(x), targets(x))
    dense = kernel(x.mT.unsqueeze(-1)).to_dense().sum(0) + model.likelihood.noise * torch.eye(len(x), dtype=x.dtype)
    wanted = torch.distributions.MultivariateNormal(model.mean_module(x), dense)
    parameters = [exact.raw_outputscale, exact.base_kernel.raw_lengthscale]
    pairs = zip(
        torch.autograd.grad(loss, parameters), torch.autograd.grad(wanted.log_prob(targets(x)), parameters), strict=True
    )
    for found, known in pairs:
        assert (found != 0.0).all()
        torch.testing.assert_close(found * len(x), known, rtol=1e-4, atol=1e-6)


def test_a_product_over_a_batch_says_that_it_is_dense():
    x = inputs()
    kernel = rfgp.approximate(batch_of_kernels(), 8, input_dim=1, seed=0)
    matrices = kernel(x.mT.unsqueeze(-1))
    with pytest.warns(UserWarning, match="product of matrices of FeatureKernel over a batch is dense"):
        product = matrices.prod(dim=-3)
    wanted = kernel(x.mT.unsqueeze(-1)).to_dense().prod(0)
    torch.testing.assert_close(product.to_dense(), wanted, rtol=0.0, atol=1e-6)  # roots of the factors have jitter


def test_a_product_with_a_matrix_without_features_says_that_it_is_dense():
    x = inputs()
    left, right = smooth(columns=2)(x[:, :2]), RBFKernel()(x[:, 2:])
    with pytest.warns(UserWarning, match="FeatureKernel with another one is dense.*approximate the product"):
        product = left.mul(right)
    close(product.to_dense(), left.to_dense() * right.to_dense())


def root(columns, seed):
    return torch.rand(20, columns, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("other", [FeatureLinearOperator, LowRankRootLinearOperator, RootLinearOperator])
def test_sums_and_products_of_features_and_roots_are_features(other):
    features, right = FeatureLinearOperator(root(3, 0)), other(root(4, 1))
    for total in (features + right, right + features):
        assert isinstance(total, FeatureLinearOperator) and total.root.shape == (20, 7)
        close(total.to_dense(), features.to_dense() + right.to_dense())
    for product in (features * right, right * features):
        assert isinstance(product, FeatureLinearOperator) and product.root.shape == (20, 12)
        close(product.to_dense(), features.to_dense() * right.to_dense())


def test_roots_as_wide_as_the_matrix_are_not_put_beside_features():
    features, square = FeatureLinearOperator(root(3, 0)), RootLinearOperator(root(20, 1))
    total = features + square
    assert not isinstance(total, FeatureLinearOperator)
    close(total.to_dense(), features.to_dense() + square.to_dense())


def test_sums_and_products_of_features_add_and_multiply_what_these_lack():
    first, second = torch.full((20,), 0.5), torch.full((20,), 0.25)
    left = FeatureLinearOperator(root(3, 0), lambda: ResidualCovariance.of_variance(first))
    right = FeatureLinearOperator(root(4, 1), lambda: ResidualCovariance.of_variance(second))
    plain = FeatureLinearOperator(root(2, 2))
    close((left + right).residual().variance(), first + second)
    close((left + plain).residual().variance(), first)
    assert (plain + plain).residual() is None and (plain * plain).residual() is None
    variances = [part.to_dense().diagonal() for part in (left, right)]
    expected = (variances[0] + first) * (variances[1] + second) - variances[0] * variances[1]
    close((left * right).residual().variance(), expected)
    close((left * plain).residual().variance(), first * plain.to_dense().diagonal())
