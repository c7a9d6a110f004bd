"""Labels of which a part is random: probabilities, derivatives far out, label noise that is learned, and refusals."""

import itertools

import gpytorch
import pytest
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import SoftmaxLikelihood

import rfgp
from rfgp.inference.latent.latent_terms import CoupledFunctions, signed_parts
from rfgp.likelihoods import HeteroscedasticSoftmaxLikelihood
from rfgp.models import LaplaceGP, WeightSpaceGP, WeightSpaceVariationalGP
from rfgp.models.laplace.class_probabilities import class_probabilities, log_predictive

pytestmark = pytest.mark.usefixtures("float64_default")
CLASSES = 3


def likelihood_of(noise=0.2, scale=1.5):
    likelihood = HeteroscedasticSoftmaxLikelihood(num_classes=CLASSES)
    likelihood.noise, likelihood.noise_scale = noise, scale
    return likelihood


def stripes(num_rows, seed=0):
    """Stripes of classes, where most labels of the right half are random: inputs, labels, and the rates."""
    generator = torch.Generator().manual_seed(seed)
    x = 2.0 * torch.rand(num_rows, 2, generator=generator) - 1.0
    rate = torch.where(x[:, 0] > 0.0, 0.7, 0.02)
    is_random = torch.rand(num_rows, generator=generator) < rate
    right = torch.bucketize(x[:, 1].contiguous(), torch.tensor([-0.3, 0.3]))
    return x, torch.where(is_random, torch.randint(0, CLASSES, (num_rows,), generator=generator), right), rate


def kernel_of(x, method="landmarks"):
    return rfgp.approximate(ScaleKernel(RBFKernel(ard_num_dims=2)), 24, method=method, train_inputs=x, seed=0)


def test_probabilities_are_a_mixture_of_a_softmax_and_equal_ones():
    values = torch.randn(4, 5, CLASSES + 1)
    rate = torch.sigmoid(torch.tensor(0.2).logit() + 1.5 * values[..., -1:])
    wanted = (1.0 - rate) * values[..., :-1].softmax(-1) + rate / CLASSES
    torch.testing.assert_close(likelihood_of()(values).probs.detach(), wanted)


def test_derivatives_are_finite_far_out():
    """Where probabilities round to zero or one."""
    far = torch.tensor([-800.0, 0.0, 800.0])
    values = torch.cartesian_prod(far, far, torch.zeros(1), far)
    for label, is_exact in itertools.product(range(CLASSES), (False, True)):
        terms = CoupledFunctions(likelihood_of(), is_exact).terms(values, torch.full((len(values),), label))
        assert all(bool(torch.isfinite(part).all()) for part in terms)


def test_curvatures_of_posteriors_are_positive_where_second_derivatives_are_not():
    torch.manual_seed(0)
    functions = CoupledFunctions(likelihood_of())
    values, labels = 2.0 * torch.randn(50, CLASSES + 1), torch.arange(50) % CLASSES
    curvature = functions.exact.terms(values, labels).curvature.detach()
    assert float(signed_parts(curvature, CLASSES + 1)[0].min()) < -0.01
    lacking = functions.exact.concave(curvature)
    for positive in (curvature + lacking, functions.terms(values, labels).curvature.detach()):
        assert float(signed_parts(positive, CLASSES + 1)[0].min()) > -1e-12
    assert functions.concave(curvature) is None


def test_label_noise_that_is_learned_is_that_of_the_labels():
    """In the half where most labels are random, and in the other; held-out labels are more probable for it."""
    x, y, _ = stripes(400)
    test, labels, rate = stripes(1000, seed=1)
    exact = ScaleKernel(RBFKernel())
    exact.outputscale, exact.base_kernel.lengthscale = 100.0, 2.0
    losses, evidences = [], []
    for likelihood in (likelihood_of(0.2, 0.5), SoftmaxLikelihood(None, CLASSES, mixing_weights=False)):
        kernel = rfgp.approximate(exact, 16, method="landmarks", train_inputs=x, seed=0)
        model = LaplaceGP(kernel, likelihood).condition(x, y)
        losses.append(log_predictive(model, test, labels))
        evidences.append(float(model.log_marginal_likelihood().detach()))
        if isinstance(likelihood, HeteroscedasticSoftmaxLikelihood):
            with torch.no_grad():
                found = likelihood.label_noise(model.posterior(test))
    for half in (0.02, 0.7):
        assert abs(float(found[rate == half].mean()) - half) < 0.1
    gain = losses[0] - losses[1]
    assert float(gain.mean()) > 3.0 * float(gain.std()) / len(gain) ** 0.5
    assert evidences[0] > evidences[1] + 10.0


def test_training_with_blocks_raises_the_evidence_of_few_rows():
    x, y, _ = stripes(60)
    model = LaplaceGP(kernel_of(x), HeteroscedasticSoftmaxLikelihood(CLASSES), block_size=20)
    before = float(model.condition(x, y).log_marginal_likelihood().detach())
    summary = rfgp.fit(model, x, y, max_evaluations=6, progress=False)
    assert summary.log_marginal_likelihood > before and model.posterior(x[:3]).mean.shape == (3, CLASSES + 1)


@pytest.mark.parametrize("block_size", [None, 20])
def test_class_probabilities_are_those_of_draws(block_size):
    x, y, _ = stripes(80)
    model = LaplaceGP(kernel_of(x), likelihood_of(), block_size=block_size, num_neighbors=8).condition(x, y)
    points = x[:6] + 0.05
    found = class_probabilities(model, points)
    torch.testing.assert_close(found.sum(-1), torch.ones(6))
    torch.testing.assert_close(log_predictive(model, points, y[:6]), found.gather(-1, y[:6, None]).squeeze(-1).log())
    torch.manual_seed(0)
    with torch.no_grad(), gpytorch.settings.num_likelihood_samples(4000):
        draws = model.likelihood(model.posterior(points)).probs
        rates = torch.sigmoid(
            torch.tensor(0.2).logit() + 1.5 * model.posterior(points).rsample(torch.Size([4000]))[..., -1]
        )
        expected = model.likelihood.label_noise(model.posterior(points))
    assert bool(((found - draws.mean(0)).abs() < 5.0 * draws.std(0) / 4000**0.5 + 0.004).all())
    assert bool(((expected - rates.mean(0)).abs() < 5.0 * rates.std(0) / 4000**0.5).all())


def test_refusals_say_what_to_do():
    x, y, _ = stripes(20)
    tasks = rfgp.approximate(MultitaskKernel(RBFKernel(), num_tasks=2), 8, input_dim=2, seed=0)
    calls = (
        (lambda: HeteroscedasticSoftmaxLikelihood(1), "two classes"),
        (lambda: HeteroscedasticSoftmaxLikelihood(2.5), "num_classes"),
        (lambda: LaplaceGP(kernel_of(x), likelihood_of(), hessian="block_diagonal"), "hessian"),
        (lambda: LaplaceGP(tasks, likelihood_of()), "one latent function"),
        (lambda: LaplaceGP(kernel_of(x, "fourier"), likelihood_of(), block_size=8), "landmarks"),
        (lambda: LaplaceGP(kernel_of(x), likelihood_of()).condition(x, y + 1), "labels"),
        (lambda: WeightSpaceVariationalGP(kernel_of(x), likelihood_of()), "LaplaceGP"),
        (lambda: WeightSpaceGP(kernel_of(x), likelihood_of()), "expected"),
        (lambda: likelihood_of().label_noise(torch.zeros(2, 4)), "model.posterior"),
    )
    for call, message in calls:
        with pytest.raises(ValueError, match=message):
            call()
