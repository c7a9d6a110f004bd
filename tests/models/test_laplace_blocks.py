"""LaplaceGP with blocks against dense algebra with their covariance, finite differences, and WeightSpaceGP."""

import copy
import io
import pickle
from functools import partial

import dense_laplace as dense
import gpytorch
import numpy as np
import pytest
import torch
from gpytorch.kernels import MaternKernel, ScaleKernel
from gpytorch.means import ConstantMean, LinearMean

import rfgp
from rfgp._support.gpytorch_names import OneDimensionalLikelihood
from rfgp.inference.latent import class_prediction
from rfgp.inference.local import LocalRows
from rfgp.likelihoods import PoissonLikelihood
from rfgp.models import LaplaceGP, WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")
ROWS, LANDMARKS, BLOCK, CLASSES = 60, 10, 16, dense.CLASSES


class Gamma(OneDimensionalLikelihood):
    """Times of mean exp(f), by a likelihood of the user's own."""

    def forward(self, f, *args, **kwargs):
        return torch.distributions.Gamma(2.0, 2.0 * torch.exp(-f))


class Ordinal(OneDimensionalLikelihood):
    """Ordered labels between thresholds."""

    def forward(self, f, *args, **kwargs):
        below = torch.sigmoid(torch.tensor([-0.5, 0.7]) - f.unsqueeze(-1))
        ends = torch.nn.functional.pad(below, (0, 1), value=1.0)
        return torch.distributions.Categorical(ends.diff(dim=-1, prepend=torch.zeros_like(f).unsqueeze(-1)))


def labels(f):
    return torch.bucketize(f, torch.tensor([-0.6, 0.6]))


def by_autograd(likelihood, f, y):
    """The derivatives of a likelihood whose closed form is long."""
    at = torch.as_tensor(f).requires_grad_()
    density = likelihood(at).log_prob(torch.as_tensor(y))
    (slope,) = torch.autograd.grad(density.sum(), at, create_graph=True)
    (second,) = torch.autograd.grad(slope.sum(), at)
    return dense.Derivatives(density.detach().numpy(), slope.detach().numpy(), np.diag(-second.numpy()))


LIKELIHOODS = {name: tuple(likelihood) for name, likelihood in dense.LIKELIHOODS.items()} | {
    "beta": (gpytorch.likelihoods.BetaLikelihood, None),
    "gamma": (Gamma, None),
    "ordinal": (Ordinal, None),
    "softmax of own scales": tuple(dense.LIKELIHOODS["softmax"]),
}
TARGETS = {
    "probit": lambda f: (f > 0).double(),
    "Poisson": lambda f: torch.poisson(f.exp()),
    "negative binomial": lambda f: torch.poisson(f.exp()),
    "Student's t": lambda f: f + 4.0 * (torch.rand_like(f) < 0.15),
    "beta": torch.sigmoid,
    "gamma": lambda f: torch.distributions.Gamma(2.0, 2.0 * torch.exp(-f)).sample(),
    "ordinal": labels,
    "softmax": labels,
    "noisy softmax": labels,
    "softmax of own scales": labels,
}


def data(name, num_rows=ROWS):
    generator = torch.Generator().manual_seed(1)
    x = 2.0 * torch.rand(num_rows, 2, generator=generator)
    f = 1.5 * torch.sin(3.0 * x.sum(-1)) + 0.3 * torch.randn(num_rows, generator=generator)
    torch.manual_seed(2)
    return x, TARGETS[name](f)


def kernel_of(x, method="landmarks"):
    exact = ScaleKernel(MaternKernel(nu=1.5, ard_num_dims=2))
    exact.outputscale, exact.base_kernel.lengthscale = 1.7, torch.tensor([0.6, 0.9])
    return rfgp.approximate(exact, LANDMARKS, method=method, input_dim=2, seed=0, train_inputs=x)


def model_of(name, x, **settings):
    kernel, mean = kernel_of(x), LinearMean(2)
    for parameter in mean.parameters():
        torch.nn.init.constant_(parameter, 0.3)
    if name == "softmax of own scales":
        shape = torch.Size([CLASSES])
        kernel, mean = ScaleKernel(kernel, batch_shape=shape), ConstantMean(batch_shape=shape)
        kernel.outputscale, mean.constant.data = torch.tensor([0.7, 1.0, 2.5]), torch.tensor([0.1, -0.2, 0.3])
    return LaplaceGP(kernel, LIKELIHOODS[name][0](), mean, **{"block_size": BLOCK, **settings})


def dense_result(name, model, x, y, test):
    """The dense approximation with landmarks and the residual between points of the same block."""
    state = {k.removeprefix("laplace.rows."): v for k, v in model.state_dict().items() if "laplace.rows." in k}
    local, points = LocalRows.from_state_dict(state), torch.cat([x, test])
    places = local.partition.place(local.points(points))
    for number, rows in enumerate(local.partition.blocks):
        places[rows] = number
    kernel, count = model.covar_module, model.latent.num_functions
    with torch.no_grad():
        scalar, mean = kernel.scalar_features(points), model.mean_module(points).expand(count, -1)
        low_rank = kernel.total_outputscale.expand(count)[:, None, None] * (scalar @ scalar.mT)
        residual = (places[:, None] == places) * (kernel.exact_kernel(points).to_dense() - low_rank)
        covariance = torch.block_diag(*(low_rank + residual)).numpy()
    closed = LIKELIHOODS[name][1] or partial(by_autograd, model.likelihood)
    is_old = np.tile(np.arange(len(points)) < len(x), count)
    old, new, mean = np.flatnonzero(is_old), np.flatnonzero(~is_old), mean.flatten().detach().numpy()
    parts = covariance[np.ix_(old, old)], mean[old], covariance[np.ix_(new, old)], covariance[np.ix_(new, new)]
    step = partial(closed, y=y.numpy())
    last = partial(step, is_expected=True) if name == "noisy softmax" else step
    found = dense.laplace(step, *parts, mean[new], final=last)
    by_point = np.arange(len(new)).reshape(count, -1).T.flatten()
    return found._replace(mean=found.mean[by_point], covariance=found.covariance[np.ix_(by_point, by_point)])


OWN = ("beta", "gamma", "ordinal", "softmax of own scales")
"""What tests/contract has not."""


@pytest.mark.parametrize("name", OWN)
def test_evidence_and_predictions_equal_dense_algebra(name):
    x, y = data(name)
    test = 2.4 * torch.rand(15, 2)
    model = model_of(name, x, num_neighbors=None).condition(x, y)
    expected, found = dense_result(name, model, x, y, test), model.posterior(test)
    np.testing.assert_allclose(model.log_marginal_likelihood().item(), expected.evidence, rtol=1e-10)
    np.testing.assert_allclose(found.mean.detach().flatten(), expected.mean, atol=1e-8)
    np.testing.assert_allclose(found.covariance_matrix.detach(), expected.covariance, atol=1e-8)
    np.testing.assert_allclose(found.variance.detach().flatten(), np.diag(expected.covariance), atol=1e-8)


@pytest.mark.parametrize("name", [name for name in OWN if name != "gamma"])
def test_gradients_follow_the_mode(name):
    x, y = data(name, 40)
    model, inputs = model_of(name, x), x.clone().requires_grad_()
    model.condition(inputs, y).log_marginal_likelihood().backward()
    start = model.mode
    places = [(parameter, 0) for parameter in model.parameters()] + [(x, 7)]
    for parameter, index in places:
        numbers, gradient = parameter.data.view(-1), (inputs if parameter is x else parameter).grad.view(-1)
        value, ends = float(numbers[index]), []
        for sign in (1.0, -1.0):
            numbers[index] = value + 1e-5 * sign
            evidence = model.condition(x, y, start=start).log_marginal_likelihood()
            ends.append(evidence.item())  # with gradients the blocks stay
        numbers[index] = value
        slope = (ends[0] - ends[1]) / 2e-5
        assert abs(float(gradient[index]) - slope) <= 1e-6 * max(abs(slope), 0.1)


def test_a_gaussian_likelihood_equals_weight_space():
    x, y = data("Student's t")
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    likelihood.noise = 0.05
    test = 2.0 * torch.rand(12, 2)
    for num_neighbors in (None, 8):
        settings = {"block_size": BLOCK, "num_neighbors": num_neighbors}
        laplace, exact = (
            kind(kernel_of(x), likelihood, ConstantMean(), **settings).condition(x, y)
            for kind in (LaplaceGP, WeightSpaceGP)
        )
        torch.testing.assert_close(laplace.log_marginal_likelihood(), exact.log_marginal_likelihood())
        found, expected = laplace.posterior(test), exact.posterior(test)
        torch.testing.assert_close(found.mean, expected.mean, rtol=1e-8, atol=1e-8)
        torch.testing.assert_close(found.covariance_matrix, expected.covariance_matrix, rtol=1e-8, atol=1e-8)


def test_neighbors_take_no_row_for_less_than_nothing():
    """Outliers have a negative precision, which is none to the neighbors of a point."""
    x, y = data("Student's t")
    model = model_of("Student's t", x, num_neighbors=5).condition(x, y)
    with torch.no_grad():
        prior = model.covar_module.exact_kernel(x, diag=True)
        variance = model.posterior(x).variance
    assert (variance > 0).all() and (variance < prior).all()


def test_classes_from_all_rows_as_neighbors_equal_dense_algebra():
    """With one block all rows are the block of a point, and its neighbors."""
    x, y = data("softmax")
    test = 2.4 * torch.rand(6, 2)
    model = model_of("softmax of own scales", x, block_size=ROWS, num_neighbors=ROWS).condition(x, y)
    expected, found = dense_result("softmax", model, x, y, test), model.posterior(test)
    covariance = found.covariance_matrix.detach()
    np.testing.assert_allclose(found.mean.detach().flatten(), expected.mean, atol=1e-8)
    np.testing.assert_allclose(found.variance.detach().flatten(), np.diag(expected.covariance), atol=1e-8)
    for point in range(len(test)):
        own = slice(CLASSES * point, CLASSES * (point + 1))
        np.testing.assert_allclose(covariance[own, own], expected.covariance[own, own], atol=1e-8)
    many = model.posterior(test.repeat(30, 1))
    torch.testing.assert_close(many.mean, found.mean.repeat(30, 1))
    torch.testing.assert_close(many.variance, found.variance.repeat(30, 1))
    torch.manual_seed(0)
    draws = found.rsample(torch.Size([20000])).flatten(1)
    error = (draws.T.cov() - covariance).abs() / covariance.diagonal().outer(covariance.diagonal()).sqrt()
    assert float(error.max()) < 6.0 * 2.0**0.5 / 20000**0.5


@pytest.mark.parametrize("name", ["probit", "Student's t"])
def test_an_update_equals_the_mode_of_all_rows(name):
    x, y = data(name)
    model = model_of(name, x, num_neighbors=None).condition(x[:45], y[:45])
    passes = model.num_passes
    model.update(x[45:], y[45:])
    expected = dense_result(name, model, x, y, x[:10] + 0.1)
    found = model.posterior(x[:10] + 0.1)
    np.testing.assert_allclose(model.log_marginal_likelihood().item(), expected.evidence, rtol=1e-10)
    np.testing.assert_allclose(found.mean.detach().flatten(), expected.mean, atol=1e-6)
    np.testing.assert_allclose(found.variance.detach().flatten(), np.diag(expected.covariance), atol=1e-6)
    again = copy.deepcopy(model).condition(x, y, start=model.mode)
    assert again.num_passes <= passes


@pytest.mark.parametrize("name", ["softmax of own scales"])
def test_states_copies_pickles_and_files_predict_alike(name, tmp_path):
    x, y = data(name)
    model = model_of(name, x).condition(x, y)
    expected, state = model.posterior(x + 0.1), io.BytesIO()
    torch.save(model.state_dict(), state)
    state.seek(0)
    loaded = model_of(name, x)
    loaded.load_state_dict(torch.load(state))
    rfgp.save(model, tmp_path / "model.rfgp", with_rows=True)
    others = (loaded, copy.deepcopy(model), pickle.loads(pickle.dumps(model)), rfgp.load(tmp_path / "model.rfgp"))
    for other in others:
        found = other.posterior(x + 0.1)
        assert torch.equal(found.mean, expected.mean) and torch.equal(found.variance, expected.variance)
        torch.testing.assert_close(other.log_marginal_likelihood(), model.log_marginal_likelihood().detach())
        other.update(x[:3], y[:3])
    with pytest.raises(ValueError, match="with_rows"):
        rfgp.save(model, tmp_path / "other.rfgp", with_rows=False)


def test_bad_calls_change_nothing():
    x, y = data("Poisson")
    model = model_of("Poisson", x).condition(x, y)
    before = model.posterior(x)
    plain = model_of("Poisson", x, block_size=None).condition(x, y)
    classes = dense.LIKELIHOODS["softmax"].make
    calls = (
        (lambda: model.condition(x, -y - 1.0), "can have"),
        (lambda: model.update(x[:2], -y[:2] - 1.0), "can have"),
        (lambda: model.update(x[:2, :1], y[:2]), "expected"),
        (lambda: model.condition(x, y, start=torch.zeros(3, 1)), "start"),
        (lambda: model.load_state_dict(plain.state_dict()), "block_size"),
        (lambda: plain.update(x, y), "block"),
        (lambda: LaplaceGP(kernel_of(x, "fourier"), PoissonLikelihood(), block_size=8), "landmarks"),
        (lambda: LaplaceGP(kernel_of(x), PoissonLikelihood(), block_size=0), "block_size"),
        (lambda: LaplaceGP(kernel_of(x), gpytorch.likelihoods.SoftmaxLikelihood(2, 2), block_size=8), "mixing weights"),
        (lambda: LaplaceGP(kernel_of(x), classes(), block_size=8, hessian="block_diagonal"), "hessian"),
    )
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
    found = model.posterior(x)
    assert torch.equal(found.mean, before.mean) and torch.equal(found.variance, before.variance)


def test_classes_at_points_of_a_block_have_the_covariance_of_what_the_rows_near_each_do_not_tell(monkeypatch):
    r"""By dense algebra, for rows near each that are not the same: with :math:`W^+` for the noise of sites."""
    x, y = data("softmax", 40)
    model = model_of("softmax", x, num_neighbors=6).condition(x, y)
    points = 2.0 * torch.rand(9, 2)
    latent = model.posterior(points)
    prediction = latent.lazy_covariance_matrix.prediction
    conditioning, kernel = prediction.conditioning, model.covar_module
    probabilities = conditioning.rows.columns[:, -CLASSES:]
    curvature = torch.diag_embed(probabilities) - probabilities.unsqueeze(-1) * probabilities.unsqueeze(-2)
    every = torch.cat([points, conditioning.rows.x])
    with torch.no_grad():
        features = kernel.features(every)
        residual = kernel.exact_kernel(every).to_dense() - features @ features.mT
    scaled = every / kernel.base_kernel.lengthscale.detach()
    near = 9 + torch.cdist(scaled[:9], scaled[9:]).argsort()[:, :6]
    eye = torch.eye(CLASSES)
    passed, known = torch.zeros(9, CLASSES, 49, CLASSES), torch.zeros(49, CLASSES, 49, CLASSES)
    known[torch.arange(9, 49), :, torch.arange(9, 49)] = torch.linalg.pinv(curvature, hermitian=True)
    for point, rows in enumerate(near):
        sites = torch.block_diag(*curvature[rows - 9])
        weights = torch.linalg.solve(torch.eye(6 * CLASSES) + sites @ torch.kron(residual[rows][:, rows], eye), sites)
        passed[point][:, rows] = (torch.kron(residual[[point]][:, rows], eye) @ weights).reshape(CLASSES, 6, CLASSES)
    passed = passed.reshape(9 * CLASSES, 49 * CLASSES)
    rest = -passed
    rest[:, : 9 * CLASSES] += torch.eye(9 * CLASSES)
    of_residual = rest @ torch.kron(residual, eye) @ rest.mT + passed @ known.reshape(2 * [49 * CLASSES]) @ passed.mT
    places = conditioning.place(points).repeat_interleave(CLASSES)
    by_function = rest @ torch.einsum("nd,qr->nqrd", features, eye).reshape(49 * CLASSES, -1)
    root = prediction.posterior.covariance_root(by_function)
    wanted = root @ root.mT + of_residual * (places[:, None] == places)
    torch.testing.assert_close(latent.covariance_matrix, wanted, rtol=0.0, atol=1e-10)
    assert float((of_residual * (places[:, None] == places)).fill_diagonal_(0.0).abs().max()) > 0.1
    blocks = wanted.reshape(9, CLASSES, 9, CLASSES).diagonal(dim1=0, dim2=2).movedim(-1, 0)
    torch.testing.assert_close(prediction.of_points(), blocks, rtol=0.0, atol=1e-10)
    monkeypatch.setattr(class_prediction, "_TOGETHER", CLASSES)
    alone = model.posterior(points).covariance_matrix.reshape(9, CLASSES, 9, CLASSES)
    torch.testing.assert_close(alone.diagonal(dim1=0, dim2=2).movedim(-1, 0), blocks, rtol=0.0, atol=1e-10)
