"""Every WeightSpaceGP of the registry equals dense algebra, and stays itself through changes, states and files."""

import functools

import pytest
import torch
from contract import LOCAL, MODELS, REFUSED, ROWS, Model

import rfgp

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
]
RELATIVE = 1e-8
every_case, every_pair = pytest.mark.every_case, pytest.mark.every_pair


def close(found, wanted, relative=RELATIVE):
    scale = max(1.0, float(wanted.detach().abs().max()))
    torch.testing.assert_close(found, wanted, rtol=0.0, atol=relative * scale)


@functools.cache
def fitted(case):
    """The model of a case; tests leave it as it is."""
    return case.fitted()


@functools.cache
def predicted(case):
    """The means and covariances at the points by the model of a case."""
    with torch.no_grad():
        return moments(fitted(case).posterior(case.inputs()[1]), case)


@functools.cache
def expected(case):
    """The same by dense algebra."""
    return case.moments(fitted(case), case.inputs()[1])


def cells(values, case):
    """Values of a posterior by law and cell: (L, m) or (L, m T)."""
    return values if case.noise_case.has_labels else values.reshape(1, -1)


def moments(distribution, case):
    covariance = distribution.covariance_matrix
    return cells(distribution.mean, case), covariance if case.noise_case.has_labels else covariance.unsqueeze(0)


@every_case
@pytest.mark.parametrize("case", REFUSED, ids=str)
def test_what_is_no_model_is_refused_with_a_sentence(case):
    with pytest.raises(ValueError, match=case.refusal):
        case.fitted()


@every_case
@pytest.mark.parametrize("case", MODELS, ids=str)
def test_evidence_and_gradients(case):
    model = case.fitted()
    found, dense = model.log_marginal_likelihood(), case.evidence(model)
    close(found, dense)
    parameters = dict(model.named_parameters())
    slopes = [torch.autograd.grad(value, list(parameters.values()), allow_unused=True) for value in (found, dense)]
    size = max(float(slope.abs().max()) for slope in slopes[1] if slope is not None)
    for name, slope, other in zip(parameters, *slopes, strict=True):
        zero = torch.zeros_like(parameters[name])
        slope, other = (zero if part is None else part for part in (slope, other))
        assert float((slope - other).abs().max()) <= 1e-7 * size, name


@every_case
@pytest.mark.parametrize("case", MODELS, ids=str)
def test_means_and_covariances_between_points_and_outputs(case):
    for value, dense in zip(predicted(case), expected(case), strict=True):
        close(value, dense)
    with torch.no_grad():
        variance = fitted(case).posterior(case.inputs()[1]).variance
    close(cells(variance, case), expected(case)[1].diagonal(dim1=-2, dim2=-1))


@every_pair
@pytest.mark.parametrize("case", MODELS, ids=str)
def test_draws_have_the_moments_of_the_posterior(case, draws=600):
    """Without blocks, the residual variance is a variance of every point, and in no function that is drawn.

    The errors of second moments are those of normal draws about the mean of each law of a mixture.
    """
    model, (_, xs) = fitted(case), case.inputs()
    torch.manual_seed(0)
    with torch.no_grad():
        functions = model.sample_functions(draws)(xs)
    functions = functions.flatten(2) if case.noise_case.has_labels else functions.reshape(draws, 1, -1)
    means, covariances = case.moments_of_draws(model, xs, of_draws=True)
    for found, of_law, within in zip(functions.unbind(1), means.unbind(1), covariances.unbind(1), strict=True):
        mean, about = of_law.mean(0), of_law - of_law.mean(0)
        outer = about.unsqueeze(-1) * about.unsqueeze(-2)
        second = within + outer
        covariance, of_cells = second.mean(0), second.diagonal(dim1=-2, dim2=-1)
        variance = covariance.diagonal()
        error = (found.mean(0) - mean) / (variance / draws).sqrt()
        assert float(error.abs().max()) < 5.0
        fourth = of_cells.unsqueeze(-1) * of_cells.unsqueeze(-2) + 2.0 * within.square() + 4.0 * within * outer
        spread = (fourth.mean(0) - covariance.square()).div(draws).sqrt()
        assert float(((found.mT.cov() - covariance) / spread).abs().max()) < 5.5


def halves(case):
    """The first rows and the last ones, as ``condition`` takes them."""
    x, y, given = case.rows()
    for half in (torch.arange(ROWS // 2), torch.arange(ROWS // 2, ROWS)):
        yield x[half], y[half], {name: value[half] for name, value in given.items()}


PARTED = [model for model in MODELS if model.settings != "blocks" or model.data != "missing"]
"""Blocks of rows that come later have other edges where cells are missing, and are left out."""


@every_pair
@pytest.mark.parametrize("case", PARTED, ids=str)
def test_rows_that_come_and_go(case):
    (x, y, given), (more_x, more_y, more_given) = halves(case)
    whole, (_, xs) = fitted(case), case.inputs()
    with torch.no_grad():
        model = case.unfitted().condition(x, y, **given).update(more_x, more_y, **more_given)
        for found, value in zip(moments(model.posterior(xs), case), predicted(case), strict=True):
            close(found, value)
        close(model.log_marginal_likelihood(), whole.log_marginal_likelihood())
        model.downdate(more_x, more_y, **more_given)
        if case.settings != "blocks":  # which keep the boxes that all rows had
            close(cells(model.posterior(xs).mean, case), case.moments(model, xs, torch.arange(ROWS // 2))[0])


@every_pair
@pytest.mark.parametrize("case", PARTED, ids=str)
def test_models_of_halves_that_are_merged_are_one_of_all_rows(case):
    whole, (_, xs) = fitted(case), case.inputs()
    with torch.no_grad():
        first, second = (case.unfitted().condition(x, y, **given) for x, y, given in halves(case))
        before = {name: value.clone() for name, value in second.state_dict().items()}
        merged = [first.merge(second)]
        if case.settings not in (*LOCAL, "draws"):  # whose rows, or several sums, are no single statistics
            try:
                merged.append(case.unfitted().load_statistics(first.statistics))
            except ValueError as error:  # sums do not tell which outputs were missing, or which rows had weights
                assert case.data != "complete" and "expected statistics of" in str(error)
        for model in merged:
            for found, value in zip(moments(model.posterior(xs), case), predicted(case), strict=True):
                close(found, value)
            close(model.log_marginal_likelihood(), whole.log_marginal_likelihood())
    after = second.state_dict()
    assert before.keys() == after.keys()
    assert all(torch.equal(after[name].nan_to_num(), value.nan_to_num()) for name, value in before.items())


@every_pair
@pytest.mark.parametrize("case", MODELS, ids=str)
def test_rows_that_are_left_out_are_those_of_a_refit(case):
    x, y, given = case.rows()
    model, row, others = fitted(case), 9, torch.arange(ROWS) != 9
    found = model.leave_one_out(x, y, **given)
    mean, covariance = case.moments(model, x[[row]], others.nonzero().squeeze(-1))
    laws = [law.noise.detach() for law in case.dense(model, x, x[:0])]
    size = case.outputs
    noise = torch.stack([law[size * row : size * (row + 1), size * row : size * (row + 1)] for law in laws])
    targets = torch.stack([law.y[size * row : size * (row + 1)] for law in case.dense(model, x, x[:0])])
    seen = ~torch.isnan(targets)
    index = (slice(None), row) if case.noise_case.has_labels else (row,)
    latent = covariance.diagonal(dim1=-2, dim2=-1)
    close(found.mean[index].reshape(targets.shape)[seen], mean[seen])
    close(found.latent_variance[index].reshape(targets.shape)[seen], latent[seen])
    close(found.variance[index].reshape(targets.shape)[seen], (latent + noise.diagonal(dim1=-2, dim2=-1))[seen])
    density = 0.0
    for m, c, y_row, is_in in zip(mean, covariance + noise, targets, seen, strict=True):
        law = torch.distributions.MultivariateNormal(m[is_in], c[is_in][:, is_in])
        density = density + law.log_prob(y_row[is_in])
    close(found.log_prob[row], density)


@every_pair
@pytest.mark.parametrize("case", [m for m in MODELS if m.data == "complete"], ids=str)
def test_a_weight_of_two_is_a_row_twice(case):
    """Where every row has a residual of its own, two rows have two, and one row of weight two has one."""
    x, y, given = case.rows()
    twice = torch.cat([torch.arange(ROWS), torch.arange(5)])
    weights = torch.where(torch.arange(ROWS) < 5, 2.0, 1.0).to(x)
    has_own = case.case.residual and (
        case.settings in ("fitc", *LOCAL) or (case.case.is_grid and case.settings != "vfe")
    )
    _, xs = case.inputs()
    with torch.no_grad():
        once = case.unfitted().condition(x, y, weights=weights, **given)
        both = case.unfitted().condition(x[twice], y[twice], **{name: value[twice] for name, value in given.items()})
        pairs = list(zip(moments(once.posterior(xs), case), moments(both.posterior(xs), case), strict=True))
    if has_own and case.settings not in LOCAL:
        assert float((pairs[0][0] - pairs[0][1]).abs().max()) > 1e-4
    elif not has_own:
        for found, value in pairs:
            close(found, value)


@pytest.mark.parametrize("case", MODELS, ids=str)
def test_states(case):
    copy, (_, xs) = case.unfitted(), case.inputs()
    copy.load_state_dict(fitted(case).state_dict())
    with torch.no_grad():
        for found, value in zip(moments(copy.posterior(xs), case), predicted(case), strict=True):
            assert torch.equal(found, value)


@pytest.mark.parametrize("case", MODELS, ids=str)
def test_files(case, tmp_path):
    model, (_, xs) = fitted(case), case.inputs()
    rfgp.save(model, tmp_path / "model.pt")
    with torch.no_grad():
        found = moments(rfgp.load(tmp_path / "model.pt").posterior(xs), case)
    for value, wanted in zip(found, predicted(case), strict=True):
        assert torch.equal(value, wanted)


@pytest.mark.parametrize("case", MODELS, ids=str)
def test_rows_without_numbers_are_refused(case):
    """What a device changes is in tests/package/test_devices.py."""
    (x, y, given), (_, xs) = case.rows(), case.inputs()
    model = case.unfitted()
    for rows in ((x.to("meta"), y), (x, y.to("meta"))):
        with pytest.raises(ValueError, match="on the meta device, which has none; pass data"):
            model.condition(*rows, **given)
    with pytest.raises(ValueError, match="on the meta device, which has none; pass data"):
        fitted(case).posterior(xs.to("meta"))


@pytest.mark.parametrize("case", MODELS, ids=str)
def test_float32(case):
    torch.set_default_dtype(torch.float32)
    single = Model(case.kernel, case.likelihood, case.settings, case.data, torch.float32)
    model, (_, xs) = single.fitted(), single.inputs()
    with torch.no_grad():
        found = moments(model.posterior(xs), single)
    torch.set_default_dtype(torch.float64)
    for value, dense in zip(found, expected(case), strict=True):
        assert value.dtype == torch.float32
        close(value.double(), dense, 1e-3)
