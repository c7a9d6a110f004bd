"""Averages of classifiers against dense algebra, refits, integrals and Monte Carlo."""

import copy
import math
import pickle

import numpy as np
import pytest
import torch
from torch.nn.functional import logsigmoid

from rfgp.averaging import AveragedGPClassifier
from rfgp.averaging.class_link import POWERS, SHARES, ClassLink, LatentMoments
from rfgp.averaging.label_kernel import LabelKernel
from rfgp.averaging.stacking import stacking_weights
from rfgp.averaging.table_kernel import TableKernel, fixed_matrices

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS, NEW = 36, 7


def rows(count=ROWS + NEW, num_classes=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(count, 3, generator=generator, dtype=torch.float64)
    noise = torch.randn(count, generator=generator, dtype=torch.float64)
    score = (3.0 * x[:, 0]).sin() + x[:, 1] * x[:, 2] + 0.2 * noise
    edges = score.quantile(torch.arange(1, num_classes, dtype=torch.float64) / num_classes)
    return x, torch.bucketize(score, edges)


@pytest.fixture(scope="module", params=[2, 3])
def fitted(request):
    x, y = rows(num_classes=request.param)
    return AveragedGPClassifier(x[:ROWS], y[:ROWS])


@pytest.fixture
def model(fitted):
    return copy.deepcopy(fitted)


def data(model):
    """All rows, of which the model has the first."""
    return rows(num_classes=model.num_classes)


def label_kernel(has_lengthscales, num_functions):
    x, y = rows(ROWS, num_classes=max(2, num_functions))
    x = 2.0 * (x - x.mean(0))
    signs = torch.where(y == torch.arange(num_functions).unsqueeze(-1), 1.0, -1.0).double()
    kernel = LabelKernel(x, signs, fixed_matrices(x, x), has_lengthscales)
    return kernel, kernel.start + 0.3 * np.random.default_rng(1).normal(size=len(kernel.start))


def dense(latent):
    """Posterior covariances (C, N, N) at the rows."""
    inverse = torch.linalg.inv(latent.kernel)
    return torch.linalg.inv(inverse + torch.diag_embed(latent.root.square()))


@pytest.mark.parametrize("num_functions", [1, 3])
def test_latent_functions_and_evidence_are_those_of_dense_algebra(num_functions):
    kernel, vector = label_kernel(True, num_functions)
    found = kernel.latent(kernel.covariance(vector))
    other = TableKernel(kernel.x, kernel.x[:, 0], kernel.fixed, has_lengthscales=True)
    unit = math.pi**2 / 3.0 / kernel.noise(vector)
    covariance = unit * other.matrix(vector, kernel.x, kernel.x, kernel.fixed)
    torch.testing.assert_close(found.kernel, covariance, rtol=1e-9, atol=1e-9)
    with torch.enable_grad():
        mode = found.mode.clone().requires_grad_()
        likelihood = logsigmoid(kernel.signs * mode).sum()
        (slope,) = torch.autograd.grad(likelihood, mode, create_graph=True)
        (curvature,) = torch.autograd.grad(slope.sum(), mode)
    torch.testing.assert_close(slope.detach() @ covariance, found.mode, rtol=1e-7, atol=1e-7)
    torch.testing.assert_close(-curvature, found.root.square(), rtol=1e-5, atol=1e-9)
    square = (found.mode * torch.linalg.solve(covariance, found.mode.mT).mT).sum()
    evidence = float(likelihood.detach()) - 0.5 * float(square)
    for function in -curvature:
        evidence -= 0.5 * float(torch.logdet(torch.eye(ROWS) + covariance * function))
    loss = kernel.loss(vector)[0] - kernel.prior(vector)[0]
    assert abs(loss + (1.0 if num_functions == 1 else 0.5) * evidence) < 1e-5


@pytest.mark.parametrize("num_functions", [1, 3])
@pytest.mark.parametrize("has_lengthscales", [True, False])
def test_gradients_are_those_of_differences(has_lengthscales, num_functions):
    kernel, vector = label_kernel(has_lengthscales, num_functions)
    for place, slope in enumerate(kernel.loss(vector)[1]):
        step = 4e-3 * np.eye(len(vector))[place]
        near, far = (kernel.loss(vector + k * step)[0] - kernel.loss(vector - k * step)[0] for k in (1, 2))
        assert abs((8.0 * near - far) / (12.0 * 4e-3) - slope) < 1e-4 * max(1.0, abs(slope))


def test_newtons_method_finds_the_mode_from_afar():
    kernel, vector = label_kernel(True, 1)
    covariance = 1e4 * kernel.covariance(vector)
    wanted = kernel.latent(covariance).mode
    kernel.last = -kernel.signs
    torch.testing.assert_close(kernel.latent(covariance).mode, wanted, rtol=1e-6, atol=1e-6)


def test_predictions_are_those_of_dense_algebra(model):
    x, _ = data(model)
    for member in model.members:
        kernel, new = member.kernel, member.scale(x[ROWS:])
        found = member.predict(x[ROWS:])
        for place, (vector, latent) in enumerate(member._posteriors()):
            unit = kernel.unit(vector)
            cross = unit * kernel.matrix(vector, kernel.x, new, fixed_matrices(kernel.x, new))
            solved = torch.linalg.solve(latent.kernel, cross)
            prior = unit * kernel.variance(vector, new)
            variance = prior - (cross * solved).sum(0) + (solved.mT @ dense(latent) * solved.mT).sum(-1)
            torch.testing.assert_close(found.mean[place], latent.mode @ solved, rtol=1e-6, atol=1e-6)
            torch.testing.assert_close(found.variance[place], variance, rtol=1e-5, atol=1e-5)


def test_left_out_rows_are_without_their_terms(model):
    """The others' terms are those of normal measurements, so that a regression on these is the same."""
    groups = [torch.tensor([0, 5, 9]), torch.tensor([1, 2])]
    for member in model.members:
        found = member.left_out(groups)
        for place, (_, latent) in enumerate(member._posteriors()):
            noise = 1.0 / latent.root.square()
            targets = latent.mode + noise * latent.slope
            for out in [*groups, torch.tensor([20])]:
                kept = torch.tensor([k for k in range(ROWS) if k not in out.tolist()])
                total = latent.kernel[kept][:, kept] + torch.diag_embed(noise[:, kept])
                cross = latent.kernel[kept][:, out]
                solved = torch.linalg.solve(total, cross.expand(len(noise), -1, -1))
                mean = (solved.mT @ targets[:, kept].unsqueeze(-1)).squeeze(-1)
                variance = latent.kernel[out][:, out].diagonal() - (solved * cross).sum(-2)
                torch.testing.assert_close(found.mean[place][:, out], mean, rtol=1e-5, atol=1e-5)
                torch.testing.assert_close(found.variance[place][:, out], variance, rtol=1e-5, atol=1e-5)


def test_left_out_rows_are_predicted_as_by_refits(model):
    """Latent functions of the others change a little without a label, which the closed form does not see."""
    x, y = data(model)
    folds = [torch.arange(k, ROWS, 6) for k in range(6)]
    for groups in ([torch.tensor([k]) for k in range(ROWS)], folds):
        some = groups[:: len(groups) // 6]  # six refits of each kind
        places = torch.cat(some)
        for member, link in zip(model.members, model.links, strict=True):
            closed = link.log_probabilities(member.left_out(groups)).exp()
            refitted = torch.zeros_like(closed)
            for out in some:
                kept = torch.tensor([k for k in range(ROWS) if k not in out.tolist()])
                other = member.with_rows(x[kept], model._signs(y[kept]))
                refitted[out] = link.log_probabilities(other.predict(x[out])).exp()
            seen = link.log_probabilities(member.predict(x[:ROWS])).exp()
            assert (closed - refitted)[places].norm() < 0.1 * (seen - refitted)[places].norm()


def test_draws_that_have_seen_a_label_count_as_if_they_had_not():
    """A grid of parameters, whose posterior of six labels is that of five times the likelihood of the sixth."""
    levels = torch.linspace(-3.0, 3.0, 400)
    labels = torch.tensor([1, 1, 0, 1, 1, 0])
    logs = torch.stack([-levels.exp().log1p(), levels - levels.exp().log1p()])
    posterior = torch.softmax(logs[labels].sum(0), dim=0)
    draws = levels[posterior.multinomial(40_000, replacement=True, generator=torch.Generator().manual_seed(0))]
    moments = LatentMoments(draws.reshape(-1, 1, 1), torch.zeros(len(draws), 1, 1))
    for left_out in (0, 1):
        others = torch.softmax(logs[labels].sum(0) - logs[left_out], dim=0)
        wanted = (others * logs[left_out].exp()).sum()
        found = ClassLink(1.0, 1.0).log_density(moments, torch.tensor([left_out])).exp()
        assert abs(float(found) - float(wanted)) < 4.0 * 0.5 / 40_000**0.5


def test_links_average_logistic_functions():
    """Odds of two classes are those of the integral over a normal distribution, nearly."""
    mean, variance = torch.meshgrid(torch.linspace(-6.0, 6.0, 9), torch.tensor([0.0, 1.0, 9.0]), indexing="ij")
    mean, variance = mean.reshape(1, 1, -1), variance.reshape(1, 1, -1)
    found = ClassLink(1.0, 1.0).log_probabilities(LatentMoments(mean, variance)).exp()
    steps = torch.linspace(-8.0, 8.0, 2001).reshape(-1, 1)
    weights = torch.softmax(-0.5 * steps.square(), dim=0)
    wanted = (weights * torch.sigmoid(mean[0] + variance[0].sqrt() * steps)).sum(0)
    torch.testing.assert_close(found[:, 1], wanted, rtol=0.0, atol=0.025)
    torch.testing.assert_close(found.sum(-1), torch.ones(27, dtype=torch.float64))
    certain = ClassLink(0.0, 1.0).log_probabilities(LatentMoments(mean, variance)).exp()
    torch.testing.assert_close(certain[:, 1], torch.sigmoid(mean[0, 0]))


def test_draws_count_the_same_and_classes_by_their_odds():
    mean = torch.tensor([[[1.0], [0.0], [-1.0]], [[0.0], [0.0], [3.0]]])
    found = ClassLink(0.3, 0.5).log_probabilities(LatentMoments(mean, torch.zeros_like(mean))).exp()
    torch.testing.assert_close(found, torch.softmax(0.5 * mean, dim=1).mean(0).mT)


def test_links_are_the_best_for_left_out_rows(model):
    _, y = data(model)
    densities = []
    for member, link in zip(model.members, model.links, strict=True):
        moments = member.left_out()
        powers = POWERS if model.num_classes > 2 else (1.0,)
        logs = {(s, p): ClassLink(s, p).log_density(moments, y[:ROWS]) for s in SHARES for p in powers}
        assert link == max(logs, key=lambda pair: logs[pair].sum())
        densities.append(logs[link].numpy())
    weights = stacking_weights(torch.from_numpy(np.stack(densities)).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(model.weights, weights, rtol=1e-9, atol=0.0)


def test_equal_inputs_are_left_out_together():
    """One by one they would be predicted by those that they equal."""
    x, y = rows(20, num_classes=2)
    x, y = x.repeat(3, 1), torch.cat([y, y, 1 - y])
    model = AveragedGPClassifier(x, y)
    groups = [torch.arange(60).reshape(3, 20)[:, k] for k in range(20)]
    pairs = zip(model.members, model.links, strict=True)
    densities = [link.log_density(member.left_out(groups), y).numpy() for member, link in pairs]
    weights = stacking_weights(torch.from_numpy(np.stack(densities)).unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(model.weights, weights, rtol=1e-9, atol=0.0)


@pytest.mark.parametrize("num_classes", [2, 3])
def test_probabilities_of_labels_from_the_prior_are_calibrated(num_classes):
    """Six problems of 60 rows with lengthscales that differ: two classes, or the quantiles of a noisy target."""
    generator, random = torch.Generator().manual_seed(4), np.random.default_rng(5)
    gaps, losses = [], []
    for _ in range(6):
        x = torch.randn(480, 4, generator=generator)
        vector = np.r_[0.5 * random.standard_t(3.0, size=4), -0.7, -0.5, -2.0, -2.0, -2.0, math.log(0.3)]
        kernel = LabelKernel(x, torch.ones(1, 480), fixed_matrices(x, x), has_lengthscales=True)
        latent = torch.linalg.cholesky(kernel.covariance(vector)) @ torch.randn(480, generator=generator)
        noise = torch.rand(480, generator=generator).logit()
        score = latent - latent.median() + noise
        y = torch.bucketize(score, score.quantile(torch.arange(1, num_classes) / num_classes))
        found = AveragedGPClassifier(x[:60], y[:60]).predictive(x[60:])
        gaps.append(float(found.probs.max(-1).values.mean() - (found.probs.argmax(-1) == y[60:]).double().mean()))
        losses.append(-float(found.log_prob(y[60:]).mean()))
    assert abs(np.mean(gaps)) < 3.0 * np.std(gaps, ddof=1) / len(gaps) ** 0.5
    assert np.mean(losses) < 0.9 * math.log(num_classes)


def test_new_rows_count_as_if_they_had_been_there(model):
    x, y = data(model)
    wanted = [member.with_rows(x, model._signs(y)).predict(x[:5]) for member in model.members]
    before = model.predictive(x[ROWS:]).log_prob(y[ROWS:]).mean()
    model.update(x[ROWS:], y[ROWS:])
    for member, found in zip(model.members, wanted, strict=True):
        torch.testing.assert_close(member.predict(x[:5]), found, rtol=1e-8, atol=1e-8)
    assert len(model.y) == ROWS + NEW and model.predictive(x[ROWS:]).log_prob(y[ROWS:]).mean() > before


def test_a_failed_update_leaves_the_model_as_it_was(model):
    x, y = data(model)
    before = model.predictive(x).probs
    for bad in ((x[ROWS:] * math.nan, y[ROWS:]), (x[ROWS:, :2], y[ROWS:]), (x[ROWS:], y[ROWS:] + 5)):
        with pytest.raises(ValueError, match="expected"):
            model.update(*bad)
    assert len(model.y) == ROWS
    torch.testing.assert_close(model.predictive(x).probs, before, rtol=0.0, atol=0.0)


def test_copies_predict_the_same(model):
    x, _ = data(model)
    written = pickle.dumps(model)
    assert len(written) < 100_000  # rows, draws and their slopes, and no matrices (N, N)
    torch.testing.assert_close(pickle.loads(written).predictive(x).probs, model.predictive(x).probs)


def test_the_evidence_is_that_of_the_most_probable_parameters(model):
    logs = [member.kernel.prior(member.mode)[0] - member.kernel.loss(member.mode)[0] for member in model.members]
    wanted = torch.logsumexp(torch.tensor(logs) + model.weights.log(), 0)
    torch.testing.assert_close(model.log_marginal_likelihood(), wanted, rtol=1e-6, atol=1e-6)


def test_units_and_columns_that_do_not_vary_do_not_matter(model):
    x, y = data(model)
    scale = torch.tensor([1e3, 1e-9, 7.0])
    other = torch.cat([x * scale, torch.ones(len(x), 1)], dim=-1)
    found = AveragedGPClassifier(other[:ROWS], y[:ROWS]).predictive(other[ROWS:]).probs
    torch.testing.assert_close(found, model.predictive(x[ROWS:]).probs, rtol=0.0, atol=0.01)


def test_labels_without_inputs_have_their_frequencies():
    y = torch.tensor([0, 0, 0, 1] * 10)
    found = AveragedGPClassifier(torch.ones(40, 2), y).predictive(torch.ones(1, 2)).probs
    torch.testing.assert_close(found, torch.tensor([[0.75, 0.25]]), rtol=0.0, atol=0.05)


@pytest.mark.parametrize(
    "bad",
    [
        lambda x, y: (x, y.double()),
        lambda x, y: (x, y[:-1]),
        lambda x, y: (x, y + 1),
        lambda x, y: (x, 2 * y),
        lambda x, y: (x, 0 * y),
        lambda x, y: (x * math.nan, y),
        lambda x, y: (x[0], y),
        lambda x, y: (x.unsqueeze(0), y.unsqueeze(0)),
    ],
)
def test_bad_rows_are_refused(bad):
    with pytest.raises(ValueError, match=r"expected .* got"):
        AveragedGPClassifier(*bad(*rows(ROWS)))


def test_other_rows_than_those_of_the_fit_are_not_left_out(model):
    x, y = data(model)
    with pytest.raises(ValueError, match="expected the rows that were fitted"):
        model.leave_one_out(x[1 : ROWS + 1], y[1 : ROWS + 1])
    with pytest.raises(ValueError, match="expected a group for each"):
        model.leave_group_out(x[:ROWS], y[:ROWS], torch.zeros(3))
