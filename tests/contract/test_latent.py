"""Every model of latent functions of the registry equals dense algebra, and stays itself in states and files."""

import copy
import dataclasses
import functools

import pytest
import torch
from dense_laplace import NormalOfTwo
from latent_contract import LATENT, Heteroscedastic, Laplace, VariationalCase

import rfgp

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
]
EXACT = [case for case in LATENT if case.likelihood != "softmax" or isinstance(case, Laplace)]
RELATIVE = {Laplace: 1e-6, VariationalCase: 1e-8, Heteroscedastic: 1e-8}


def cases(contract, chosen=LATENT):
    """The cases that keep a contract."""
    return pytest.mark.parametrize("case", [case for case in chosen if contract not in case.refusals], ids=str)


every_case = pytest.mark.every_case


def close(found, wanted, relative):
    found, wanted = found.detach(), wanted.detach()
    assert float((found - wanted).abs().max()) <= relative * max(1.0, float(wanted.abs().max()))


@functools.cache
def fitted(case):
    """The model of a case; tests leave it as it is."""
    return case.fitted()


@functools.cache
def law(case):
    """What it stands for."""
    torch.manual_seed(0)
    with torch.no_grad():
        return case.law(fitted(case))


def moments(model, case):
    """Means and covariances by points."""
    with torch.no_grad():
        found = model.posterior(case.inputs()[1])
        return found.mean.flatten(), found.covariance_matrix


def evidence(model, case):
    """That of the model of all rows."""
    return case.evidence(model, case.inputs()[0], case.targets())


@every_case
@cases("moments")
def test_means_and_covariances_between_points_and_functions(case):
    mean, covariance = moments(fitted(case), case)
    close(mean, law(case).mean, RELATIVE[type(case)])
    close(covariance, law(case).covariance, RELATIVE[type(case)])
    with torch.no_grad():
        posterior = fitted(case).posterior(case.inputs()[1])
    points = len(case.inputs()[1])
    count = len(mean) // points
    assert posterior.mean.shape == posterior.variance.shape == ((points,) if count == 1 else (points, count))
    close(posterior.variance.flatten(), law(case).covariance.diagonal(), RELATIVE[type(case)])


@every_case
@cases("draws")
def test_draws_have_the_moments_of_the_posterior(case, draws=600):
    torch.manual_seed(0)
    with torch.no_grad():
        values = fitted(case).posterior(case.inputs()[1]).rsample(torch.Size([draws])).reshape(draws, -1)
    covariance = law(case).covariance
    variance = covariance.diagonal()
    assert float(((values.mean(0) - law(case).mean) / (variance / draws).sqrt()).abs().max()) < 5.0
    spread = (variance[:, None] * variance + covariance.square()).div(draws).sqrt()
    assert float(((values.mT.cov() - covariance) / spread).abs().max()) < 5.5


@every_case
@cases("evidence")
def test_evidence(case):
    """Of a Laplace model anew, whose fit computes it: that tests which notice a change of it run it."""
    torch.manual_seed(1)
    model = case.fitted() if isinstance(case, Laplace) else copy.deepcopy(fitted(case))
    with torch.no_grad():
        found = evidence(model, case)
    wanted = law(case)
    allowed = RELATIVE[type(case)] * max(1.0, abs(float(wanted.evidence))) + 5.0 * wanted.error
    assert abs(float(found - wanted.evidence)) <= allowed


@every_case
@cases("gradient", [case for case in EXACT if not isinstance(case, Laplace)])
def test_gradients_of_bounds(case):
    """There is none in the best distribution of the weights: of noise up to what a bound tells to ten digits."""
    model = copy.deepcopy(fitted(case))
    parameters = dict(model.named_parameters())
    dense = torch.autograd.grad(case.law(model).evidence, list(parameters.values()))
    found = torch.autograd.grad(evidence(model, case), list(parameters.values()), allow_unused=True)
    allowed = (1e-4 if isinstance(case, Heteroscedastic) else 1e-7) * max(float(slope.abs().max()) for slope in dense)
    for (name, parameter), slope, wanted in zip(parameters.items(), found, dense, strict=True):
        is_of_weights = "_variational_distribution" in name
        slope = torch.zeros_like(parameter) if slope is None else slope
        assert float((slope - wanted).abs().max()) <= allowed, name
        assert not (is_of_weights and case.is_best) or float(wanted.abs().max()) <= allowed, name


@cases("gradient", [case for case in LATENT if case not in EXACT])
def test_gradients_of_bounds_by_draws(case, repeats=8):
    """Of several draws each, the mean of which is that of dense algebra in standard errors."""
    torch.manual_seed(0)
    model = copy.deepcopy(fitted(case))
    parameters = [p for p in model.parameters() if p.requires_grad]
    means, variances = [], []
    for bound in (lambda: evidence(model, case), lambda: case.law(model).evidence):
        slopes = [torch.autograd.grad(bound(), parameters, allow_unused=True) for _ in range(repeats)]
        flat = torch.stack([torch.cat([slope.flatten() for slope in part]) for part in slopes])
        means.append(flat.mean(0))
        variances.append(flat.var(0) / repeats)
    error = (variances[0] + variances[1]).sqrt() + 1e-9
    assert float(((means[0] - means[1]) / error).abs().max()) < 8.0


@pytest.mark.parametrize("case", [case for case in LATENT if isinstance(case, Laplace)], ids=str)
def test_gradients_follow_the_mode(case):
    """Along one direction in all parameters, by differences of dense evidences."""
    model = case.fitted()
    parameters = list(model.parameters())
    slopes = torch.autograd.grad(model.log_marginal_likelihood(), parameters)
    directions = [torch.linspace(0.5, 1.0, p.numel()).reshape(p.shape) for p in parameters]
    ends = []
    for step in (1e-4, -2e-4):
        with torch.no_grad():
            for parameter, direction in zip(parameters, directions, strict=True):
                parameter.add_(step * direction)
        ends.append(float(case.law(model).evidence))
    wanted = (ends[0] - ends[1]) / 2e-4
    found = sum(float((slope * direction).sum()) for slope, direction in zip(slopes, directions, strict=True))
    assert abs(found - wanted) <= 1e-5 * max(1.0, abs(wanted))


@every_case
@cases("update")
def test_an_update_equals_the_mode_of_all_rows(case):
    (x, _), y = case.inputs(), case.targets()
    parts = case.fit(case.unfitted(), x[:12], y[:12]).update(x[12:], y[12:])
    for found, wanted in zip(moments(parts, case), moments(fitted(case), case), strict=True):
        close(found, wanted, 1e-6)
    close(evidence(parts, case), evidence(fitted(case), case), 1e-6)


@pytest.mark.parametrize("case", LATENT, ids=str)
def test_what_a_model_does_not_do_is_refused_with_a_sentence(case):
    x, y = case.inputs()[0], case.targets()
    calls = {
        "update": lambda: fitted(case).update(x, y),
        "leave out": lambda: fitted(case).leave_one_out(x, y),
        "weights": lambda: rfgp.fit(case.unfitted(), x, y, weights=torch.ones(len(x)).to(x), progress=False),
    }
    for contract, sentence in case.refusals.items():
        with pytest.raises((AttributeError, ValueError), match=sentence):
            calls[contract]()


@cases("states")
def test_copies_and_states(case):
    model, again = fitted(case), case.unfitted()
    again.load_state_dict(model.state_dict())
    for other in (copy.deepcopy(model), again):
        for found, wanted in zip(moments(other, case), moments(model, case), strict=True):
            assert torch.equal(found, wanted)


@cases("states")
def test_files(case, tmp_path):
    model = fitted(case)
    rfgp.save(model, tmp_path / "model.pt", with_rows=True)
    loaded = rfgp.load(tmp_path / "model.pt", classes=[NormalOfTwo])
    for found, wanted in zip(moments(loaded, case), moments(model, case), strict=True):
        assert torch.equal(found, wanted)


@cases("device")
def test_rows_without_numbers_are_refused(case):
    """What a device changes is in tests/package/test_devices.py."""
    x, xs = (part.to("meta") for part in case.inputs())
    y = case.targets()
    with pytest.raises(ValueError, match="on the meta device, which has none; pass data"):
        case.fit(case.unfitted(), x, y)
    with pytest.raises(ValueError, match="on the meta device, which has none; pass data"):
        fitted(case).posterior(xs)
    with pytest.raises(ValueError, match="on the meta device, which has none; pass data"):
        case.fit(case.unfitted(), case.inputs()[0], y.to("meta"))


@cases("float32")
def test_float32(case):
    """Draws and products with the covariance too; where draws of functions lead a fit, its weights are taken over."""
    torch.set_default_dtype(torch.float32)
    single = dataclasses.replace(case, dtype=torch.float32)
    is_drawn = isinstance(case, VariationalCase) and case.likelihood == "softmax"
    model = copy.deepcopy(fitted(case)).float() if is_drawn else single.fitted()
    found = moments(model, single)
    with torch.no_grad():
        posterior = model.posterior(single.inputs()[1])
        product = posterior.lazy_covariance_matrix @ torch.ones(len(found[1]), 1)
        drawn = posterior.rsample()
    torch.set_default_dtype(torch.float64)
    for value, wanted in zip(found, (law(case).mean, law(case).covariance), strict=True):
        assert value.dtype == product.dtype == drawn.dtype == torch.float32
        close(value.double(), wanted, 1e-3)
    close(product.double(), found[1].double().sum(-1, keepdim=True), 1e-4)
