"""Sums and products by operators of kernels that are approximated already."""

from __future__ import annotations

import itertools
import math
import warnings

import pytest
import torch
from gpytorch.kernels import (
    ConstantKernel,
    CosineKernel,
    IndexKernel,
    LCMKernel,
    LinearKernel,
    MaternKernel,
    MultitaskKernel,
    PolynomialKernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from kernel_suite import suite
from problems import ExactModel

import rfgp
from rfgp.approximation import FeatureKernel, with_features
from rfgp.approximation.hooks.feature_operator import FeatureLinearOperator
from rfgp.approximation.hooks.prediction import FeaturePredictionStrategy

pytestmark = pytest.mark.usefixtures("float64_default")

WIDTH, SCALAR = 32, torch.Size()


def points(num_rows=7, columns=2, seed=0):
    return torch.rand(num_rows, columns, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def smooth(seed=1, width=WIDTH, **options):
    return rfgp.approximate(ScaleKernel(RBFKernel(**options)), width, input_dim=2, seed=seed)


def rough(seed=2, width=WIDTH, method="auto"):
    return rfgp.approximate(MaternKernel(nu=1.5), width, input_dim=2, seed=seed, method=method)


def dense(kernel, x):
    with torch.no_grad():
        return kernel(x).to_dense()


# Two kernels with features, or with exact ones, whose sum is that of their matrices.
PAIRS = {
    "two": (smooth, rough),
    "with a linear kernel": (smooth, LinearKernel),
    "with a scaled linear kernel": (smooth, lambda: ScaleKernel(LinearKernel())),
    "with a sum of exact ones": (smooth, lambda: LinearKernel() + ConstantKernel()),
    "with a product of exact ones": (smooth, lambda: LinearKernel() * CosineKernel(active_dims=[0])),
    "scaled by GPyTorch": (lambda: ScaleKernel(rough()), lambda: ScaleKernel(smooth())),
    "with a sum": (smooth, lambda: rough() + smooth(seed=5)),
    "sum first": (lambda: rough() + smooth(seed=5), smooth),
    "with a product": (smooth, lambda: rough() * LinearKernel()),
    "not made yet": (smooth, lambda: rfgp.approximate(MaternKernel(), WIDTH, seed=4)),
}
every_pair = pytest.mark.parametrize("pair", PAIRS)


@every_pair
def test_a_sum_has_the_features_of_both(pair):
    left, right = (make() for make in PAIRS[pair])
    x, total = points(), left + right
    assert isinstance(total, FeatureKernel) or isinstance(left, ScaleKernel)
    kernel = with_features(total)
    torch.testing.assert_close(dense(total, x), dense(left, x) + dense(right, x))
    torch.testing.assert_close(dense(kernel, x), dense(total, x))
    assert set(map(id, total.parameters())) == {id(p) for part in (left, right) for p in part.parameters()}


@every_pair
def test_a_product_with_one_approximated_kernel_is_the_product_of_the_matrices(pair):
    left, right = (make() for make in PAIRS[pair])
    if pair in ("with a linear kernel", "with a scaled linear kernel", "with a product of exact ones"):
        kernel, x = left * right, points()
        assert isinstance(kernel.exact_kernel, ProductKernel)
        torch.testing.assert_close(dense(kernel, x), dense(left, x) * dense(right, x))
    else:
        assert isinstance(with_features(ProductKernel(left, right)), FeatureKernel)


@pytest.mark.parametrize("method", ["fourier", "fourier_orthogonal", "fourier:complex", "tensor_srht", "gaussian:ctr"])
@pytest.mark.parametrize("is_lazy", [False, True])
def test_products_of_one_width_are_feature_by_feature_and_unbiased(method, is_lazy):
    make = RBFKernel if method.startswith("fourier") else lambda: PolynomialKernel(power=2)
    dim = None if is_lazy else 2
    parts = [rfgp.approximate(ScaleKernel(make()), 16, input_dim=dim, method=method, seed=seed) for seed in (0, 1)]
    kernel, x = parts[0] * parts[1], points(4)
    kernel(x).to_dense()
    assert kernel.features(x).shape[-1] == 16 * (2 if method.endswith("complex") else 1)
    generator = torch.Generator().manual_seed(0)
    draws = torch.stack([dense(kernel.resample(generator), x) for _ in range(100)])
    exact = dense(parts[0].exact_kernel, x) * dense(parts[1].exact_kernel, x)
    assert ((draws.mean(0) - exact).abs() <= 4.5 * draws.std(0) / math.sqrt(100) + 1e-12).all()


def test_factors_of_a_product_share_their_parameters():
    left, right = smooth(), rough()
    kernel = left * right
    left.outputscale = 3.0
    right.lengthscale = 0.2
    assert float(kernel.kernels[0].outputscale.detach()) == pytest.approx(3.0)
    assert float(kernel.kernels[1].lengthscale.detach()) == pytest.approx(0.2)
    assert sorted(map(id, kernel.parameters())) == sorted(id(p) for part in (left, right) for p in part.parameters())


def test_default_approximations_are_independent():
    torch.manual_seed(0)
    x = points(3)
    pairs = [[rfgp.approximate(RBFKernel(), 2, input_dim=2) for _ in range(2)] for _ in range(400)]
    left, right = (torch.stack([dense(pair[i], x)[0, 1:] for pair in pairs]) for i in (0, 1))
    products = (left - left.mean(0)) * (right - right.mean(0))
    assert (products.mean(0).abs() <= 4.5 * products.std(0) / math.sqrt(len(pairs))).all()


@pytest.mark.parametrize("other", [lambda: smooth(seed=2), lambda: rough(seed=2, width=2 * WIDTH)])
def test_a_product_of_kernels_with_one_seed_raises(other):
    with pytest.raises(ValueError, match="same ones, which would bias their product; make one of them with another"):
        rough(seed=2) * other()
    left, right = rough(seed=2), other()
    with torch.no_grad():
        right.resample(torch.Generator().manual_seed(7))
    assert isinstance(left * right, FeatureKernel)


def test_products_of_many_features_warn():
    with pytest.warns(UserWarning, match="give them one width, or approximate the product"):
        smooth(width=256) * rough(width=128)


@pytest.mark.parametrize("combine", [lambda a, b: a + b, lambda a, b: a * b])
def test_a_part_without_features_warns(combine):
    x = points()
    with pytest.warns(UserWarning, match="RBFKernel has no features.*wrap it with rfgp.approximate first"):
        kernel = combine(smooth(), RBFKernel())
    assert torch.isfinite(dense(kernel, x)).all()
    with pytest.warns(UserWarning, match="ScaleKernel has no features"):
        combine(smooth(), ScaleKernel(RBFKernel()))
    with pytest.raises(ValueError, match=r"wrap it with rfgp\.approximate"):
        with_features(kernel)


def test_what_is_no_kernel_is_refused_as_by_gpytorch():
    for combine in (lambda: smooth() + 1.0, lambda: 1.0 + smooth(), lambda: smooth() * 2.0, lambda: sum([smooth()])):
        with pytest.raises(TypeError):
            combine()


def with_tasks(num_rows=12):
    tasks = torch.arange(num_rows) % 2
    return torch.cat([points(num_rows), tasks[:, None].to(torch.get_default_dtype())], dim=-1)


def test_products_with_an_index_kernel_keep_features_and_predict_in_weight_space():
    data = rfgp.approximate(RBFKernel(active_dims=[0, 1]), WIDTH, input_dim=3, seed=0)
    tasks, x = IndexKernel(2, rank=2, active_dims=[2]), with_tasks()
    kernel = data * tasks
    assert kernel.features(x).shape == (12, 2 * WIDTH)
    torch.testing.assert_close(dense(kernel, x), dense(data, x) * dense(tasks, x))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ExactModel(x, x[:, 0].sin(), GaussianLikelihood(), kernel).eval()
        covariance = model(x[:3] + 0.0).covariance_matrix
    assert isinstance(model.prediction_strategy, FeaturePredictionStrategy)
    matrix = dense(kernel, x)
    noise = model.likelihood.noise.detach()
    expected = matrix - matrix @ torch.linalg.solve(matrix + noise * torch.eye(12), matrix)
    torch.testing.assert_close(covariance, expected[:3, :3])


SEVERAL = {
    "tasks": lambda: MultitaskKernel(smooth(), num_tasks=2),
    "coregionalization": lambda: LCMKernel([smooth(), rough()], num_tasks=2, rank=2),
}


@pytest.mark.parametrize("name", SEVERAL)
def test_kernels_of_several_outputs_around_approximated_ones_keep_features(name):
    exact, x = SEVERAL[name](), points()
    kernel = with_features(exact)
    torch.testing.assert_close(dense(kernel, x), dense(exact, x))
    assert isinstance(kernel(x).evaluate_kernel(), FeatureLinearOperator)
    y = torch.stack([x[:, 0], x[:, 1]], dim=-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = rfgp.models.WeightSpaceGP(exact, MultitaskGaussianLikelihood(num_tasks=2)).condition(x, y)
    assert model.posterior(x).mean.shape == y.shape


def test_a_linear_model_of_coregionalization_is_approximated():
    exact, x = LCMKernel([RBFKernel(), MaternKernel()], num_tasks=2, rank=2), points(4)
    kernel = rfgp.approximate(exact, 2 * WIDTH, input_dim=2, seed=0)
    assert kernel.num_scalar_features == 2 * WIDTH
    torch.testing.assert_close(dense(kernel.exact_kernel, x), dense(exact, x))


def test_a_sum_of_nested_sums_has_the_names_of_gpytorch():
    exact = RBFKernel() + MaternKernel() + LinearKernel()
    kernel = rfgp.approximate(RBFKernel(), WIDTH, input_dim=2, seed=0) + rough() + LinearKernel()
    names = [name for name, _ in kernel.named_constraints()]
    assert names == [f"exact_kernel.{name}" for name, _ in exact.named_constraints()]


def test_one_advice_for_a_model_with_more_features_than_rows():
    x = points(10)
    kernel = smooth()
    model = ExactModel(x, x[:, 0], GaussianLikelihood(), ScaleKernel(kernel))
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(3):
            model.train()
            model(x)
            model.eval()
            model(x + 0.1)
        weight_space = rfgp.models.WeightSpaceGP(kernel, GaussianLikelihood())
        for _ in range(3):
            weight_space.condition(x, x[:, 0])
    assert len([w for w in found if "exceed" in str(w.message)]) == 1


def test_every_kernel_has_its_own_advice_and_training_does_not_use_it_up():
    x = points(10)
    for seed, method in itertools.product((0, 1), ("fit", "train")):
        model = rfgp.models.WeightSpaceGP(smooth(seed=seed), GaussianLikelihood())
        with pytest.warns(UserWarning, match="exceed") as found:
            model.condition(x, x[:, 0])
            if method == "train":
                rfgp.fit(model, x, x[:, 0], max_evaluations=2)
        assert len([w for w in found if "exceed" in str(w.message)]) == 1
    model = rfgp.models.WeightSpaceGP(smooth(seed=3), GaussianLikelihood())
    with pytest.warns(UserWarning, match="exceed"):
        rfgp.fit(model, x, x[:, 0], max_evaluations=2)


def by_operator(combine):
    """A maker of compositions by an operator, for GPyTorch's suite."""

    def make(columns, active_dims=None, batch_shape=SCALAR, **options):
        kinds = (RBFKernel, MaternKernel)
        exact = [kind(active_dims=active_dims, batch_shape=batch_shape, **options) for kind in kinds]
        dims = None if active_dims is None else max(active_dims) + 1
        parts = [rfgp.approximate(kernel, WIDTH, input_dim=dims or columns, seed=i) for i, kernel in enumerate(exact)]
        return combine(*parts)

    return make


COMPOSED = {
    "Sum": lambda a, b: a + b,
    "Product": lambda a, b: a * b,
    "SumWithLinear": lambda a, b: a + ScaleKernel(LinearKernel(active_dims=a.active_dims, batch_shape=a.batch_shape)),
    "ScaledSum": lambda a, b: with_features(ScaleKernel(a + b)),
    "SumOfProducts": lambda a, b: a * b + ScaleKernel(a),
}
for _name, _combine in COMPOSED.items():
    globals()[f"Test{_name}"] = suite(by_operator(_combine))
