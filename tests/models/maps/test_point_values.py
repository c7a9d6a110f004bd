"""The values of a map are those of the posterior, for every kind of model."""

import math
import pickle

import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean
from output_problems import NOISES, NOISES_OF_ONE, OUTPUT_KERNELS, output_model, output_rows
from problems import (
    COMPOSITIONS,
    FORMS,
    KERNELS,
    KINDS,
    composition,
    likelihood_for,
    methods_of,
    model_for,
    polynomial,
    rows_for,
    scaled,
)

import rfgp
from rfgp.inference import PointMixture, PointMoments, PointPredictor
from rfgp.likelihoods import ComplexGaussianLikelihood, MultitaskMultivariateNormal
from rfgp.models import HeteroscedasticGP, LaplaceGP, WeightSpaceGP, WeightSpaceVariationalGP
from rfgp.models.maps.evaluation import Evaluator

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
    pytest.mark.filterwarnings("ignore:the residuals of complex targets are improper"),
]

POINTS, CLOSE = 17, 1e-12


def points(columns, seed=5):
    return 1.5 * torch.randn(POINTS, columns, generator=torch.Generator().manual_seed(seed))


def values_of(posterior):
    """Means and variances (N,), or (N, T) with a column for each class or output."""
    mean, variance = posterior.mean.detach(), posterior.variance.detach()
    if mean.dim() == 2 and not isinstance(posterior, MultitaskMultivariateNormal):
        mean, variance = mean.mT, variance.mT
    return [v.squeeze(-1) if v.dim() == 2 else v for v in (mean, variance)]


def assert_map_equals(model, x, posterior=None):
    mean, variance = values_of(model.posterior(x) if posterior is None else posterior)
    summary = rfgp.predict_map(model, x, progress=False)
    assert summary.mean.shape == mean.shape and summary.variance.shape == variance.shape
    assert summary.mean.dtype == mean.dtype and summary.variance.dtype == variance.dtype
    torch.testing.assert_close(summary.mean, mean, rtol=CLOSE, atol=CLOSE * float(mean.abs().max()))
    torch.testing.assert_close(summary.variance, variance, rtol=1e-10, atol=CLOSE * float(variance.max()))
    alone = rfgp.predict_map(model, x, variance=False, progress=False)
    assert alone.variance is None and torch.equal(alone.mean, summary.mean)
    return summary


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_likelihoods_of_one_output(kind, form):
    model = model_for(kind, form).condition(*rows_for(kind, 40))
    assert isinstance(model.point_predictor(), PointPredictor)
    assert_map_equals(model, points(3))


@pytest.mark.parametrize(
    ("name", "noise", "pattern"),
    [
        (name, noise, pattern)
        for name, (_, outputs) in OUTPUT_KERNELS.items()
        for noise in (NOISES if outputs > 1 else NOISES_OF_ONE)
        for pattern in (("none",) if noise in ("shared", "full alone") else ("none", "random"))
    ],
)
def test_several_outputs(name, noise, pattern):
    model = output_model(name, noise).condition(*output_rows(name, pattern=pattern))
    assert isinstance(model.point_predictor(), PointPredictor)
    assert_map_equals(model, points(2))


@pytest.mark.parametrize(("name", "method"), [(name, m) for name, case in KERNELS.items() for m in methods_of(case)])
def test_kernels(name, method):
    case = KERNELS[name]
    x = case.inputs(40)
    kernel = rfgp.approximate(scaled(case.make()), 16, train_inputs=x, method=method, seed=0)
    model = WeightSpaceGP(kernel, GaussianLikelihood()).condition(x, torch.sin(x.sum(-1)))
    assert_map_equals(model, case.inputs(POINTS, seed=4))


@pytest.mark.parametrize("name", COMPOSITIONS)
def test_compositions(name):
    x = points(3, seed=6)
    model = WeightSpaceGP(rfgp.approximate(composition(name), 48, input_dim=3, seed=0), GaussianLikelihood())
    assert_map_equals(model.condition(x, torch.sin(x.sum(-1))), points(3))


def landmark_kernel(x):
    return rfgp.approximate(ScaleKernel(MaternKernel(nu=1.5)), 8, method="landmarks", train_inputs=x, seed=0)


@pytest.mark.parametrize("residual", ["none", "vfe", "fitc"])
def test_landmarks(residual):
    x = points(2, seed=6)
    model = WeightSpaceGP(landmark_kernel(x), GaussianLikelihood(), ConstantMean(), residual=residual)
    assert_map_equals(model.condition(x, torch.sin(x.sum(-1))), points(2))


@pytest.mark.parametrize("num_neighbors", [None, 4])
def test_blocks(num_neighbors):
    x = torch.randn(60, 2)
    options = {"block_size": 20, "num_neighbors": num_neighbors}
    model = WeightSpaceGP(landmark_kernel(x), GaussianLikelihood(), ConstantMean(), **options)
    assert_map_equals(model.condition(x, torch.sin(x.sum(-1))), points(2))


@pytest.mark.parametrize("kind", KINDS)
def test_mixtures_of_draws(kind):
    model = WeightSpaceGP(polynomial(method="rademacher:real"), likelihood_for(kind), num_draws=3)
    assert isinstance(model.condition(*rows_for(kind, 40)).point_predictor(), PointMixture)
    assert_map_equals(model, points(3))


def test_improper_complex_targets():
    x, y, _ = rows_for("complex", 40)
    model = WeightSpaceGP(polynomial(), ComplexGaussianLikelihood(has_pseudo_noise=True)).condition(x, y)
    assert assert_map_equals(model, points(3)).mean.is_complex()


def scales_of_classes():
    kernel = polynomial(batch_shape=torch.Size([3]))
    kernel.outputscale = torch.tensor([0.5, 1.0, 2.0])
    return WeightSpaceGP(kernel, likelihood_for("dirichlet"), ConstantMean(batch_shape=torch.Size([3])))


def test_an_output_scale_and_a_mean_for_each_class():
    model = scales_of_classes()
    model.mean_module.constant = torch.tensor([0.1, 0.2, 0.3])
    assert_map_equals(model.condition(*rows_for("dirichlet", 40)), points(3))


def fourier(seed=0, input_dim=2):
    return rfgp.approximate(ScaleKernel(RBFKernel()), 16, input_dim=input_dim, seed=seed)


OTHERS = {
    "Laplace": lambda x, y: LaplaceGP(fourier(), BernoulliLikelihood()).condition(x, (y > 0).double()),
    "variational": lambda x, y: WeightSpaceVariationalGP(fourier(), BernoulliLikelihood()).eval(),
    "heteroscedastic": lambda x, y: fitted(HeteroscedasticGP(fourier(), fourier(1), ConstantMean()), x, y),
}


def fitted(model, x, y):
    rfgp.fit(model, x, y, max_evaluations=3, progress=False)
    return model


@pytest.mark.parametrize("name", OTHERS)
def test_other_models_by_their_posterior(name):
    x = points(2, seed=6)
    assert_map_equals(OTHERS[name](x, torch.sin(x.sum(-1))), points(2))


@pytest.mark.parametrize("kind", ["gaussian", "complex"])
def test_noise_of_one_output(kind):
    model = model_for(kind).condition(*rows_for(kind, 40))
    x = points(3)
    summary = rfgp.predict_map(model, x, noise=True, progress=False)
    noisy = model.likelihood(model.posterior(x))
    torch.testing.assert_close(summary.variance, noisy.variance.detach(), rtol=CLOSE, atol=0.0)


def test_one_noise_shared_by_all_outputs():
    """GPyTorch's GaussianLikelihood takes no distribution of several outputs."""
    model = output_model("multitask", "shared").condition(*output_rows("multitask"))
    x = points(2)
    noisy = model.posterior(x).variance.detach() + model.likelihood.noise.detach()
    summary = rfgp.predict_map(model, x, noise=True, progress=False)
    torch.testing.assert_close(summary.variance, noisy, rtol=CLOSE, atol=0.0)


@pytest.mark.parametrize("kind", ["one", "per task", "full", "full alone"])
def test_noise_of_several_outputs(kind):
    model = output_model("multitask", kind).condition(*output_rows("multitask"))
    x = points(2)
    noisy = model.likelihood(model.posterior(x))
    summary = rfgp.predict_map(model, x, noise=True, progress=False)
    torch.testing.assert_close(summary.variance, noisy.variance.detach(), rtol=CLOSE, atol=0.0)


@pytest.mark.parametrize("kind", ["fixed", "dirichlet"])
def test_noise_that_differs_between_points_is_refused(kind):
    model = model_for(kind).condition(*rows_for(kind, 40))
    with pytest.raises(ValueError, match="one noise for all points"):
        rfgp.predict_map(model, points(3), noise=True)


def single(method="fourier", lengthscale=0.5, num_features=64):
    """A model in float32."""
    x = torch.rand(200, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float32)
    kernel = ScaleKernel(RBFKernel())
    kernel.base_kernel.lengthscale = lengthscale
    made = rfgp.approximate(kernel.float(), num_features, train_inputs=x, method=method, seed=0)
    return WeightSpaceGP(made, GaussianLikelihood().float()).condition(x, torch.sin(9.0 * x.sum(-1)))


def in_prior_deviations(model, x, found, exact):
    unit = model.point_predictor(torch.float64).prior_variance(x).sqrt().squeeze(-1)
    mean = (found.mean.double() - exact.mean).abs() / unit
    return mean, (found.variance.double().sqrt() - exact.variance.sqrt()).abs() / unit


@pytest.mark.parametrize("method", ["fourier", "landmarks", "optimized_maclaurin"])
def test_float32_errors_are_stated(method):
    """At a sample that has all points, the stated errors are the largest there are."""
    model, x = single(method), torch.rand(32, 2, dtype=torch.float32)
    found = rfgp.predict_map(model, x, progress=False)
    exact = rfgp.predict_map(model, x, dtype=torch.float64, progress=False)
    assert found.dtype == found.mean.dtype == torch.float32 and exact.mean.dtype == torch.float64
    errors = in_prior_deviations(model, x, found, exact)
    torch.testing.assert_close([float(e.max()) for e in errors], list(found.float32_error), rtol=1e-6, atol=1e-12)
    assert exact.float32_error is None and max(found.float32_error) < 1e-3 and found.float64_rows == 0


def test_where_float32_is_not_enough_float64_is_taken():
    """Far from the origin, float32 has no digits left for phases; the other batches stay in float32."""
    model = single(lengthscale=0.01)
    near = torch.rand(40, 2, dtype=torch.float32)
    far = near + 1e4
    batches = [near, far]
    exact = rfgp.predict_map(model, batches, dtype=torch.float64, progress=False)
    found = rfgp.predict_map(model, batches, progress=False)
    assert found.float64_rows == 40 and 0.0 < max(found.float32_error) < 1e-3
    assert torch.equal(found.mean[40:], exact.mean[40:].float())
    assert torch.equal(found.variance[40:], exact.variance[40:].float())


@pytest.mark.parametrize("part", [0, 1])
def test_a_float32_value_that_is_no_number_is_replaced(part):
    model = single()
    exact, x = model.point_predictor(torch.float64), torch.rand(5, 2, dtype=torch.float32)

    def lost(x, variance):
        values = list(exact(x, variance))
        values[part] = values[part] * math.nan
        return PointMoments(*values)

    lost.dtype = torch.float32
    found = Evaluator(lost, exact).at(x)
    assert found.is_replaced and np.isfinite(found.arrays["mean"]).all() and np.isfinite(found.arrays["variance"]).all()


def test_a_float64_model_in_float32():
    model = model_for("gaussian").condition(*rows_for("gaussian", 40))
    found = rfgp.predict_map(model, points(3), dtype=torch.float32, progress=False)
    exact = rfgp.predict_map(model, points(3), progress=False)
    assert found.mean.dtype == torch.float32 and 0.0 < max(found.float32_error) < 1e-5
    torch.testing.assert_close(found.mean.double(), exact.mean, rtol=0.0, atol=1e-4)


def test_the_predictor_keeps_its_values():
    model = model_for("gaussian").condition(*rows_for("gaussian", 40))
    predictor = model.point_predictor()
    before = predictor(points(3))
    model.covar_module.raw_outputscale.data.add_(1.0)
    model.mean_module.constant = 5.0
    for after in (predictor(points(3)), pickle.loads(pickle.dumps(predictor))(points(3))):
        assert torch.equal(after.mean, before.mean) and torch.equal(after.variance, before.variance)


def test_the_predictor_has_no_training_data():
    sizes = []
    for rows in (100, 10_000):
        x = torch.randn(rows, 2)
        model = WeightSpaceGP(fourier(), GaussianLikelihood(), keep_data=True).condition(x, x.sum(-1))
        sizes.append(len(pickle.dumps(model.point_predictor())))
    assert abs(sizes[1] - sizes[0]) < 100


def test_gradients_are_left_alone():
    model = model_for("gaussian").condition(*rows_for("gaussian", 40))
    x = points(3).requires_grad_()
    assert not rfgp.predict_map(model, x, progress=False).mean.requires_grad


def test_many_outputs_predict_by_the_posterior(monkeypatch):
    monkeypatch.setattr(rfgp.inference.posterior.point_predictor, "_LARGEST_ROOTS", 0)
    model = output_model("curl-free").condition(*output_rows("curl-free"))
    assert not isinstance(model.point_predictor(), PointPredictor)
    assert_map_equals(model, points(2))
    with pytest.raises(ValueError, match="the dtype of the model"):
        rfgp.predict_map(model, points(2), dtype=torch.float32)
