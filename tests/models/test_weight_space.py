"""WeightSpaceGP: updates, loaders, bad data, stale use, state, chunks, batches, sampled functions and precision."""

import copy
import io
import pickle
import warnings

import dense
import gpytorch
import pytest
import torch
from gpytorch.kernels import LinearKernel, PolynomialKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from moments import check_moments
from problems import (
    CLASSES,
    FORMS,
    INPUTS,
    KINDS,
    ExactModel,
    likelihood_for,
    model_for,
    no_graph,
    polynomial,
    rows_for,
)
from torch.utils.data import DataLoader, TensorDataset

import rfgp
from rfgp.inference import GramStatistics
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS = 40
SUMS = ("gram", "cross", "target_gram", "count", "log_noise")
kinds = pytest.mark.parametrize("kind", KINDS)
forms = pytest.mark.parametrize("form", FORMS)


def fitted(kind, form="ctr", num_rows=ROWS, **options):
    with torch.no_grad():
        return model_for(kind, form, **options).condition(*rows_for(kind, num_rows))


def part(arguments, index):
    return tuple(None if a is None else a[index] for a in arguments)


def batches(arguments, size):
    """Batches (x, y) or (x, y, noise)."""
    known = [a for a in arguments if a is not None]
    return [tuple(a[start : start + size] for a in known) for start in range(0, len(known[0]), size)]


def points(num_points=5):
    return torch.randn(num_points, INPUTS, generator=torch.Generator().manual_seed(9))


def has_evidence(kind, form):
    return form != "complex" or kind == "complex"


def assert_same_model(a, b, kind, form="ctr", **tolerance):
    """Equal posteriors and evidence; bit for bit where no tolerance is given."""
    tolerance = tolerance or {"rtol": 0.0, "atol": 0.0}
    with torch.no_grad():
        torch.testing.assert_close(no_graph(a.posterior(points())), no_graph(b.posterior(points())), **tolerance)
        if has_evidence(kind, form):
            torch.testing.assert_close(a.log_marginal_likelihood(), b.log_marginal_likelihood(), **tolerance)


ROUNDING = {"rtol": 1e-9, "atol": 1e-9}


@forms
@kinds
def test_updates_equal_one_fit(kind, form):
    arguments, whole = rows_for(kind, ROWS), fitted(kind, form)
    with torch.no_grad():
        model = model_for(kind, form).condition(*part(arguments, slice(0, 13)))
        for chunk in (slice(13, 20), slice(20, 21), slice(21, ROWS)):
            assert model.update(*part(arguments, chunk)) is model
    for name in SUMS:
        torch.testing.assert_close(getattr(model.statistics, name), getattr(whole.statistics, name), **ROUNDING)
    assert_same_model(model, whole, kind, form, **ROUNDING)


@kinds
@pytest.mark.filterwarnings("ignore:.*exceed the .* training rows")
def test_an_update_of_an_unfitted_model_fits_it(kind):
    arguments, whole = rows_for(kind, ROWS), fitted(kind)
    with torch.no_grad():
        model = model_for(kind).update(*part(arguments, slice(0, 1))).update(*part(arguments, slice(1, ROWS)))
    assert_same_model(model, whole, kind, **ROUNDING)


@kinds
def test_a_fit_forgets_earlier_data(kind):
    with torch.no_grad():
        model = model_for(kind).condition(*rows_for(kind, 25, seed=5)).condition(*rows_for(kind, ROWS))
    assert_same_model(model, fitted(kind), kind)


@kinds
def test_a_loader_gives_the_fit_of_its_rows(kind):
    arguments, whole = rows_for(kind, ROWS), fitted(kind)
    known = [a for a in arguments if a is not None]
    loaders = [
        batches(arguments, 11),
        (list(batch) for batch in batches(arguments, 16)),
        DataLoader(TensorDataset(*known), batch_size=9, shuffle=True),
    ]
    for loader in loaders:
        with torch.no_grad():
            model = model_for(kind).condition(loader)
        assert sum(len(x) for x, _, _ in model.training_data) == ROWS
        assert_same_model(model, whole, kind, **ROUNDING)


def test_a_loader_carries_gradients():
    arguments = rows_for("gaussian", ROWS)
    gradients = []
    for data in (arguments, (batches(arguments, 11),)):
        model = model_for("gaussian")
        model.condition(*data).log_marginal_likelihood().backward()
        gradients.append([p.grad for p in model.parameters()])
    torch.testing.assert_close(*gradients, **ROUNDING)


def test_an_update_after_a_loader():
    arguments = rows_for("gaussian", ROWS)
    with torch.no_grad():
        model = model_for("gaussian").condition(batches(part(arguments, slice(0, 30)), 10))
        model.update(*part(arguments, slice(30, ROWS)))
    assert_same_model(model, fitted("gaussian"), "gaussian", **ROUNDING)
    assert [len(x) for x, _, _ in model.training_data] == [10, 10, 10, ROWS - 30]


def test_bad_loaders_raise():
    arguments = rows_for("gaussian", ROWS)
    model, before = fitted("gaussian"), fitted("gaussian")
    used_up = iter(batches(arguments, 10))
    list(used_up)
    for loader in ([], used_up):
        with pytest.raises(ValueError, match="expected at least one batch"):
            model.condition(loader)
    with pytest.raises(ValueError, match="expected batches"):
        model.condition([arguments[0]])
    with pytest.raises(ValueError, match="expected batches"):
        model.condition([(*arguments, None)])
    with pytest.raises(ValueError, match="from a loader alone"):
        model.condition(batches(arguments, 10), arguments[1])
    broken = batches(arguments, 10)
    broken[2] = (broken[2][0], broken[2][1] * float("nan"))
    with pytest.raises(ValueError, match="expected finite"):
        model.condition(broken)
    with pytest.raises(ValueError, match="expected the noise"):
        fitted("fixed").condition(batches(arguments, 10))
    assert_same_model(model, before, "gaussian")


def spoilt(value, entry):
    value = value.clone()
    value[(3,) * value.dim() if value.dim() == 1 else (3, 1)] = entry
    return value


BAD = {
    "NaN in x": ("gaussian", lambda x, y, n: (spoilt(x, float("nan")), y, n)),
    "infinity in x": ("gaussian", lambda x, y, n: (spoilt(x, float("inf")), y, n)),
    "NaN in y": ("gaussian", lambda x, y, n: (x, spoilt(y, float("nan")), n)),
    "infinity in complex y": ("complex", lambda x, y, n: (x, spoilt(y, complex(0.0, float("inf"))), n)),
    "too many columns": ("gaussian", lambda x, y, n: (torch.cat([x, x], dim=-1), y, n)),
    "too few columns": ("gaussian", lambda x, y, n: (x[:, :2], y, n)),
    "float32": ("gaussian", lambda x, y, n: (x.float(), y.float(), n)),
    "float32 x": ("gaussian", lambda x, y, n: (x.float(), y, n)),
    "float32 y": ("gaussian", lambda x, y, n: (x, y.float(), n)),
    "complex64 y": ("complex", lambda x, y, n: (x, y.to(torch.complex64), n)),
    "float32 noise": ("fixed", lambda x, y, n: (x, y, n.float())),
    "integer x": ("gaussian", lambda x, y, n: (x.long(), y, n)),
    "integer y": ("gaussian", lambda x, y, n: (x, y.long(), n)),
    "integer noise": ("fixed", lambda x, y, n: (x, y, torch.ones_like(y).long())),
    "NumPy x": ("gaussian", lambda x, y, n: (x.numpy(), y, n)),
    "NumPy y": ("gaussian", lambda x, y, n: (x, y.numpy(), n)),
    "NumPy labels": ("dirichlet", lambda x, y, n: (x, y.numpy(), n)),
    "no y": ("gaussian", lambda x, y, n: (x, None, n)),
    "float labels": ("dirichlet", lambda x, y, n: (x, y.double(), n)),
    "boolean labels": ("dirichlet", lambda x, y, n: (x, y > 0, n)),
    "unknown labels": ("dirichlet", lambda x, y, n: (x, y + 1, n)),
    "negative labels": ("dirichlet", lambda x, y, n: (x, y - 1, n)),
    "one-hot labels": ("dirichlet", lambda x, y, n: (x, torch.nn.functional.one_hot(y), n)),
    "fewer y": ("gaussian", lambda x, y, n: (x, y[:-1], n)),
    "column y": ("gaussian", lambda x, y, n: (x, y.unsqueeze(-1), n)),
    "fewer labels": ("dirichlet", lambda x, y, n: (x, y[:-1], n)),
    "missing noise": ("fixed", lambda x, y, n: (x, y, None)),
    "missing noise, learned": ("fixed+learned", lambda x, y, n: (x, y, None)),
    "fewer noise": ("fixed", lambda x, y, n: (x, y, n[:-1])),
    "zero noise": ("fixed", lambda x, y, n: (x, y, spoilt(n, 0.0))),
    "negative noise": ("fixed+learned", lambda x, y, n: (x, y, spoilt(n, -0.1))),
    "NaN noise": ("fixed", lambda x, y, n: (x, y, spoilt(n, float("nan")))),
    "infinite noise": ("fixed", lambda x, y, n: (x, y, spoilt(n, float("inf")))),
    "noise for a Gaussian likelihood": ("gaussian", lambda x, y, n: (x, y, torch.ones_like(y))),
    "noise for a complex likelihood": ("complex", lambda x, y, n: (x, y, torch.ones(len(x)))),
    "noise for labels": ("dirichlet", lambda x, y, n: (x, y, torch.ones(len(x)))),
    "complex y": ("gaussian", lambda x, y, n: (x, torch.complex(y, y), n)),
    "complex y with fixed noise": ("fixed", lambda x, y, n: (x, torch.complex(y, y), n)),
    "real y": ("complex", lambda x, y, n: (x, y.real, n)),
    "no rows": ("gaussian", lambda x, y, n: (x[:0], y[:0], n)),
    "no labels": ("dirichlet", lambda x, y, n: (x[:0], y[:0], n)),
    "0-d x": ("gaussian", lambda x, y, n: (x[0, 0], y, n)),
    "3-d x": ("gaussian", lambda x, y, n: (x[None], y[None], n)),
}


CALLS = [(method, case) for method in ("condition", "update") for case in BAD]
CALLS.remove(("condition", "NumPy x"))
HARMLESS_AT_FIRST = ("too many columns", "NumPy x")


@pytest.mark.parametrize(("method", "case"), CALLS)
def test_bad_data_raise_and_leave_the_model(method, case):
    kind, spoil = BAD[case]
    model = fitted(kind)
    statistics, data = model.statistics, model.training_data
    sums = {name: getattr(statistics, name).clone() for name in SUMS}
    before = no_graph(model.posterior(points()))
    with pytest.raises(ValueError, match="expected"):
        getattr(model, method)(*spoil(*rows_for(kind, 10, seed=2)))
    assert model.statistics is statistics and model.training_data is data
    for name in SUMS:
        assert torch.equal(getattr(statistics, name), sums[name])
    after = no_graph(model.posterior(points()))
    assert all(torch.equal(a, b) for a, b in zip(after, before, strict=True))


@pytest.mark.parametrize("case", [case for case in BAD if case not in HARMLESS_AT_FIRST])
def test_bad_data_of_a_first_fit_leave_the_model_unfitted(case):
    kind, spoil = BAD[case]
    model = model_for(kind, input_dim=None if "columns" not in case else INPUTS)
    with pytest.raises(ValueError, match="expected"):
        model.condition(*spoil(*rows_for(kind, 20, seed=2)))
    with pytest.raises(ValueError, match="call condition"):
        model.posterior(points())
    with torch.no_grad():
        assert_same_model(model.condition(*rows_for(kind, ROWS)), fitted(kind, input_dim=None), kind)


BAD_POINTS = {
    "NaN": lambda x: spoilt(x, float("nan")),
    "columns": lambda x: x[:, :2],
    "float32": lambda x: x.float(),
    "integers": lambda x: x.long(),
    "1-d": lambda x: x[:, 0],
    "empty": lambda x: x[:0],
    "NumPy": lambda x: x.numpy(),
}


@pytest.mark.parametrize("case", BAD_POINTS)
@pytest.mark.parametrize("kind", ["gaussian", "complex", "dirichlet"])
def test_bad_points_raise(kind, case):
    with pytest.raises(ValueError, match="expected"):
        fitted(kind).posterior(BAD_POINTS[case](points()))


def test_columns_that_active_dims_do_not_find_raise():
    x, y, _ = rows_for("gaussian", ROWS)
    exact = PolynomialKernel(power=2, active_dims=[0, 2])
    model = WeightSpaceGP(rfgp.approximate(exact, 12, seed=0), GaussianLikelihood()).condition(x, y)
    for use in (lambda: model.posterior(x[:, :2]), lambda: model.update(x[:, :2], y)):
        with pytest.raises(ValueError, match="expected"):
            use()


def test_columns_that_the_mean_does_not_expect_raise():
    x, y, _ = rows_for("gaussian", ROWS)
    with pytest.raises(ValueError, match="expected"):
        WeightSpaceGP(polynomial(), GaussianLikelihood(), gpytorch.means.LinearMean(INPUTS + 1)).condition(x, y)


@kinds
def test_an_unfitted_model_raises(kind):
    model = model_for(kind)
    uses = [
        lambda: model.posterior(points()),
        lambda: model.log_marginal_likelihood(),
        lambda: model.sample_functions(1),
        lambda: model.weight_posterior(),
        lambda: model.statistics,
    ]
    for use in uses:
        with pytest.raises(ValueError, match="call condition"):
            use()


def set_offset(model, value):
    model.covar_module.base_kernel.offset = value


@kinds
def test_stale_use_raises_until_the_parameter_is_back_or_the_model_is_fitted_again(kind):
    model, before = fitted(kind), fitted(kind)
    offset = model.covar_module.base_kernel.raw_offset.detach().clone()
    model.posterior(points())
    set_offset(model, 0.4)
    uses = [
        lambda: model.posterior(points()),
        lambda: model.log_marginal_likelihood(),
        lambda: model.sample_functions(1),
        lambda: model.update(*rows_for(kind, 10)),
    ]
    for use in uses:
        with pytest.raises(ValueError, match=r"offset.*again"):
            use()
    with torch.no_grad():
        model.covar_module.base_kernel.raw_offset.copy_(offset)
    assert_same_model(model, before, kind)
    fresh = model_for(kind)
    for each in (model, fresh):
        set_offset(each, 0.4)
        with torch.no_grad():
            each.condition(*rows_for(kind, ROWS))
    assert_same_model(model, fresh, kind)


def test_ard_variances_make_the_statistics_stale():
    x, y, _ = rows_for("gaussian", ROWS)
    exact = LinearKernel(ard_num_dims=INPUTS)
    model = WeightSpaceGP(rfgp.approximate(exact, INPUTS), GaussianLikelihood()).condition(x, y)
    exact.variance = torch.tensor([[1.0, 2.0, 3.0]])
    with pytest.raises(ValueError, match=r"variance.*again"):
        model.posterior(x)


def test_noise_that_the_statistics_contain_makes_them_stale():
    model = fitted("fixed+learned")
    model.likelihood.second_noise = 0.7
    with pytest.raises(ValueError, match=r"likelihood.*again"):
        model.posterior(points())


def test_new_weights_make_the_statistics_stale():
    model = fitted("gaussian")
    before = no_graph(model.posterior(points()))
    assert model.resample(torch.Generator().manual_seed(5)) is model
    with pytest.raises(ValueError, match=r"random weights.*again"):
        model.posterior(points())
    with torch.no_grad():
        after = no_graph(model.condition(*rows_for("gaussian", ROWS)).posterior(points()))
    assert not torch.allclose(after[0], before[0])


def test_loaded_weights_make_the_statistics_stale():
    model, other = fitted("gaussian"), fitted("gaussian", seed=7)
    model.covar_module.load_state_dict(other.covar_module.state_dict())
    with pytest.raises(ValueError, match="again"):
        model.posterior(points())


def set_learned_noise(model):
    model.likelihood.noise = 0.05


def set_outputscale(model):
    model.covar_module.outputscale = 3.0


def set_constant(model):
    model.mean_module.constant = -1.5


def set_alpha(model):
    model.likelihood.set_alpha_epsilon(0.2)


CHANGES = [
    *[(kind, set_learned_noise) for kind in ("gaussian", "complex")],
    *[(kind, change) for kind in KINDS for change in (set_outputscale, set_constant)],
    ("dirichlet", set_alpha),
]


@pytest.mark.parametrize(("kind", "change"), CHANGES)
def test_parameters_that_need_no_new_fit(kind, change):
    model, fresh = fitted(kind), model_for(kind)
    before = no_graph(model.posterior(points()))
    for each in (model, fresh):
        change(each)
    with torch.no_grad():
        fresh.condition(*rows_for(kind, ROWS))
    assert_same_model(model, fresh, kind, **ROUNDING)
    assert not torch.allclose(no_graph(model.posterior(points()))[0], before[0])


@pytest.mark.parametrize("input_dim", [None, INPUTS], ids=["lazy", "eager"])
@forms
@kinds
def test_state_of_a_fitted_model(kind, form, input_dim):
    model = fitted(kind, form, input_dim=input_dim)
    model.covar_module.outputscale = 2.0
    if kind == "dirichlet":
        model.likelihood.set_alpha_epsilon(0.3)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = model_for(kind, form, input_dim=input_dim, seed=99)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert_same_model(fresh, model, kind, form)
    with torch.no_grad():
        more = rows_for(kind, 10, seed=3)
        assert_same_model(fresh.update(*more), model.update(*more), kind, form)


def test_state_after_new_weights():
    model = model_for("gaussian").resample(torch.Generator().manual_seed(3))
    with torch.no_grad():
        model.condition(*rows_for("gaussian", ROWS))
    fresh = model_for("gaussian")
    fresh.load_state_dict(model.state_dict())
    assert_same_model(fresh, model, "gaussian")


@pytest.mark.parametrize(
    "make_stale", [lambda model: set_offset(model, 0.4), lambda model: model.resample(torch.Generator().manual_seed(3))]
)
def test_state_of_a_stale_model_is_stale(make_stale):
    model = fitted("gaussian")
    make_stale(model)
    fresh = model_for("gaussian")
    fresh.load_state_dict(model.state_dict())
    with pytest.raises(ValueError, match="again"):
        fresh.posterior(points())


def test_state_of_an_unfitted_model():
    model = fitted("gaussian")
    model.load_state_dict(model_for("gaussian").state_dict())
    with pytest.raises(ValueError, match="call condition"):
        model.posterior(points())


def test_state_does_not_follow_the_model():
    model, fresh = fitted("gaussian"), model_for("gaussian")
    state = model.state_dict()
    with torch.no_grad():
        model.update(*rows_for("gaussian", 10, seed=3))
    fresh.load_state_dict(state)
    assert_same_model(fresh, fitted("gaussian"), "gaussian")


def test_state_carries_alpha_epsilon_to_targets_and_noise():
    _, labels, _ = rows_for("dirichlet", ROWS)
    models = [WeightSpaceGP(polynomial(), DirichletClassificationLikelihood(labels, alpha)) for alpha in (0.3, 0.01)]
    models[1].load_state_dict(models[0].state_dict())
    torch.testing.assert_close(models[1].likelihood.transformed_targets, models[0].likelihood.transformed_targets)
    torch.testing.assert_close(models[1].likelihood.noise_covar.noise, models[0].likelihood.noise_covar.noise)


def test_state_of_another_number_of_classes_raises():
    state = fitted("dirichlet").state_dict()
    other = WeightSpaceGP(
        polynomial(), DirichletClassificationLikelihood(num_classes=CLASSES + 1), gpytorch.means.ConstantMean()
    )
    with pytest.raises(ValueError, match=f"expected .* {CLASSES + 1} classes, got {CLASSES}"):
        other.load_state_dict(state)


def through_pickle(model):
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("clone", [copy.deepcopy, through_pickle])
@kinds
def test_copies(kind, clone):
    model = model_for(kind).condition(*rows_for(kind, ROWS))
    twin = clone(model)
    assert_same_model(twin, model, kind, **ROUNDING)
    with torch.no_grad():
        assert_same_model(clone(model), model, kind, **ROUNDING)
        twin.update(*rows_for(kind, 10, seed=3))
        twin.covar_module.outputscale = 5.0
    assert_same_model(model, fitted(kind), kind, **ROUNDING)


def test_a_copy_of_an_unfitted_lazy_model_builds_the_same_map():
    model = model_for("gaussian", input_dim=None)
    twin = copy.deepcopy(model)
    with torch.no_grad():
        assert_same_model(
            twin.condition(*rows_for("gaussian", ROWS)), model.condition(*rows_for("gaussian", ROWS)), "gaussian"
        )


@forms
@kinds
def test_chunks_of_rows_do_not_change_predictions(kind, form, monkeypatch):
    model, x = fitted(kind, form), points(23)
    vectors = torch.randn(23, 2)
    functions = model.sample_functions(1)

    def predictions():
        latent = model.posterior(x)
        products = latent.lazy_covariance_matrix @ vectors if hasattr(latent, "lazy_covariance_matrix") else latent.loc
        return [latent.mean, latent.variance, latent.covariance_matrix, products, functions[0](x)]

    with torch.no_grad():
        whole = predictions()
        seen = []

        def chunks(num_rows, *_):
            seen.append(num_rows)
            return [slice(start, start + 4) for start in range(0, num_rows, 4)]

        monkeypatch.setattr("rfgp.inference.posterior.products.row_chunks", chunks)
        monkeypatch.setattr("rfgp.inference.posterior.regression.row_chunks", chunks)
        chunked = predictions()
    assert 23 in seen
    torch.testing.assert_close(chunked, whole, rtol=1e-11, atol=1e-12)


def test_many_rows_are_predicted_in_chunks():
    model, x = fitted("gaussian"), points(20_000)
    with torch.no_grad():
        latent = model.posterior(x)
        mean, variance = latent.mean, latent.variance
        for rows in (slice(0, 3), slice(8190, 8195), slice(19_997, 20_000)):
            piece = model.posterior(x[rows])
            torch.testing.assert_close(mean[rows], piece.mean, rtol=1e-11, atol=1e-12)
            torch.testing.assert_close(variance[rows], piece.variance, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("batch", [(2,), (2, 4)])
@forms
@pytest.mark.parametrize("kind", ["gaussian", "fixed", "complex"])
def test_batches_of_points(kind, form, batch):
    model = fitted(kind, form)
    x = torch.randn(*batch, 5, INPUTS)
    with torch.no_grad():
        latent = model.posterior(x)
        assert latent.batch_shape == batch and latent.event_shape == (5,)
        assert latent.covariance_matrix.shape == (*batch, 5, 5)
        assert latent.rsample(torch.Size([7])).shape == (7, *batch, 5)
        function = model.sample_functions(1)[0]
        values = function(x)
        for index in torch.cartesian_prod(*[torch.arange(size) for size in batch]).reshape(-1, len(batch)):
            single = model.posterior(x[tuple(index)])
            torch.testing.assert_close(latent.mean[tuple(index)], single.mean)
            torch.testing.assert_close(latent.variance[tuple(index)], single.variance)
            torch.testing.assert_close(latent.covariance_matrix[tuple(index)], single.covariance_matrix)
            torch.testing.assert_close(values[tuple(index)], function(x[tuple(index)]))


@forms
def test_dirichlet_posteriors_are_batches_of_classes(form):
    model = fitted("dirichlet", form)
    latent = model.posterior(points())
    assert latent.batch_shape == (CLASSES,) and latent.event_shape == (5,)
    assert latent.variance.shape == (CLASSES, 5) and latent.covariance_matrix.shape == (CLASSES, 5, 5)
    assert latent.rsample(torch.Size([7])).shape == (7, CLASSES, 5)
    assert model.sample_functions(1)[0](points()).shape == (CLASSES, 5)
    with pytest.raises(ValueError, match="expected inputs of shape"):
        model.posterior(torch.randn(2, 5, INPUTS))


def test_likelihoods_add_their_noise():
    x = points()
    model = fitted("gaussian")
    with torch.no_grad():
        latent = model.posterior(x)
        noisy = model.likelihood(latent)
        torch.testing.assert_close(noisy.mean, latent.mean)
        torch.testing.assert_close(noisy.variance, latent.variance + model.likelihood.noise)
        full = latent.covariance_matrix + model.likelihood.noise * torch.eye(5)
        torch.testing.assert_close(noisy.covariance_matrix, full)
        y = torch.randn(5)
        reference = torch.distributions.MultivariateNormal(latent.mean, full)
        torch.testing.assert_close(noisy.log_prob(y), reference.log_prob(y))

        model = fitted("fixed")
        noise = 0.1 + torch.rand(5)
        noisy = model.likelihood(model.posterior(x), noise=noise)
        torch.testing.assert_close(noisy.variance, model.posterior(x).variance + noise)

        model = fitted("complex")
        noisy = model.likelihood(model.posterior(x))
        torch.testing.assert_close(noisy.variance, model.posterior(x).variance + model.likelihood.noise)

        model = WeightSpaceGP(polynomial(), DirichletClassificationLikelihood(torch.arange(5) % CLASSES))
        model.condition(*rows_for("dirichlet", ROWS))
        noisy = model.likelihood(model.posterior(x))
        torch.testing.assert_close(noisy.variance, model.posterior(x).variance + model.likelihood.noise_covar.noise)


def test_parts_of_the_covariance():
    with torch.no_grad():
        latent = fitted("gaussian").posterior(points(8))
        dense = latent.covariance_matrix
        lazy = latent.lazy_covariance_matrix
        torch.testing.assert_close(lazy[2:5, :4].to_dense(), dense[2:5, :4])
        torch.testing.assert_close(lazy.diagonal(), dense.diagonal())
        torch.testing.assert_close(lazy @ torch.ones(8), dense.sum(-1))
        torch.testing.assert_close((lazy * 2.0).to_dense(), dense * 2.0)
        torch.testing.assert_close(lazy.root_decomposition().to_dense(), dense)
        torch.testing.assert_close(latent[1:4].covariance_matrix, dense[1:4, 1:4])
        torch.testing.assert_close(lazy.expand(2, 8, 8).to_dense(), dense.expand(2, 8, 8))


DRAWS = 2000
SAMPLED = [
    ("gaussian", "real"),
    ("gaussian", "complex"),
    ("complex", "complex"),
    ("complex", "ctr"),
    ("dirichlet", "ctr"),
]


@pytest.mark.parametrize(("kind", "form"), SAMPLED)
def test_sampled_functions_have_the_moments_of_the_posterior(kind, form):
    model, x = fitted(kind, form), points(3)
    with torch.no_grad():
        draws = model.sample_functions(DRAWS)(x)
        latent = model.posterior(x)
    assert draws.shape == (DRAWS, *latent.mean.shape) and draws.is_complex() == (kind == "complex")
    check_moments(draws, latent.mean, latent.covariance_matrix)


@pytest.mark.parametrize(("kind", "form"), SAMPLED)
def test_draws_at_points_have_the_moments_of_the_posterior(kind, form):
    with torch.no_grad():
        latent = fitted(kind, form).posterior(points(3))
        check_moments(latent.rsample(torch.Size([20 * DRAWS])), latent.mean, latent.covariance_matrix)


@pytest.mark.parametrize(("kind", "form"), SAMPLED)
def test_a_sampled_function_is_one_function(kind, form):
    model, x = fitted(kind, form), points(9)
    with torch.no_grad():
        first, second = model.sample_functions(2)
        values = first(x)
        torch.testing.assert_close(first(x[4:7]), values[..., 4:7])
        torch.testing.assert_close(first(torch.cat([x, x])), torch.cat([values, values], dim=-1))
        assert not torch.allclose(second(x), values)


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_numbers_of_functions_that_raise(count):
    with pytest.raises(ValueError, match="expected a positive integer for num_functions"):
        fitted("gaussian").sample_functions(count)


def test_more_features_than_rows_warn():
    x, y, _ = rows_for("gaussian", 10)
    with pytest.warns(UserWarning, match="12 features exceed the 10 training rows"):
        model = WeightSpaceGP(polynomial(), GaussianLikelihood()).condition(x, y)
    assert model.posterior(x).mean.shape == (10,)
    with pytest.warns(UserWarning, match="exceeds the 10 training rows"):
        rfgp.approximate(PolynomialKernel(power=2), 12, train_inputs=x, seed=0)


@forms
@kinds
def test_float32_is_close_to_float64(kind, form):
    reference = model_for(kind, form, width=64)
    model = copy.deepcopy(reference).float()
    arguments = rows_for(kind, 2000)
    with torch.no_grad():
        reference.condition(*arguments)
        model.condition(
            *[a if a is None or not (a.is_floating_point() or a.is_complex()) else narrow(a) for a in arguments]
        )
        exact, latent = reference.posterior(points()), model.posterior(points().float())
        for name in ("mean", "variance", "covariance_matrix"):
            value, expected = getattr(latent, name), getattr(exact, name)
            assert value.dtype == narrow(expected).dtype
            assert (value - expected).abs().max() <= 1e-3 * expected.abs().max()
        if has_evidence(kind, form):
            value, expected = model.log_marginal_likelihood(), reference.log_marginal_likelihood()
            assert value.dtype == torch.float64
            assert abs(float(value - expected)) <= 1e-3 * abs(float(expected))


def narrow(value):
    return value.to(torch.complex64 if value.is_complex() else torch.float32)


@forms
@kinds
def test_gradients_with_respect_to_points(kind, form):
    model = fitted(kind, form).requires_grad_(False)
    x = points(3).requires_grad_()
    columns = torch.randn(3, 2)

    def product(x):
        latent = model.posterior(x)
        if kind == "complex":
            return latent.covariance_matrix.abs()
        return latent.lazy_covariance_matrix @ columns

    for output in (lambda x: model.posterior(x).mean, lambda x: model.posterior(x).variance, product):
        assert torch.autograd.gradcheck(output, x, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("kind", ["gaussian", "fixed+learned", "dirichlet"])
def test_predictions_carry_gradients_of_all_parameters_where_gpytorch_is_told_so(kind):
    arguments, model = rows_for(kind, ROWS), model_for(kind, "real")
    parameters = dict(model.named_parameters())

    def predictions():
        latent = model.condition(*arguments).posterior(points())
        return latent.mean.sum() + latent.variance.sum()

    with gpytorch.settings.detach_test_caches(False):
        value = predictions()
        gradients = torch.autograd.grad(value, list(parameters.values()))
    for (name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        flat, values, step = parameter.detach().view(-1), [], 1e-5
        start = flat.clone()
        for sign in (1.0, -1.0):
            with torch.no_grad():
                flat.copy_(start + sign * step)
                values.append(predictions())
                flat.copy_(start)
        difference = (values[0] - values[1]) / (2.0 * step)
        torch.testing.assert_close(gradient.sum(), difference, rtol=1e-6, atol=1e-8, msg=name)
    torch.testing.assert_close(predictions().detach(), value.detach())


TWO = torch.Size([2])
UNSUPPORTED = {
    "likelihood": lambda: WeightSpaceGP(polynomial(), gpytorch.likelihoods.BernoulliLikelihood()),
    "Student's likelihood": lambda: WeightSpaceGP(polynomial(), gpytorch.likelihoods.StudentTLikelihood()),
    "multitask likelihood": lambda: WeightSpaceGP(
        polynomial(), gpytorch.likelihoods.MultitaskGaussianLikelihood(num_tasks=2)
    ),
    "batch of noise": lambda: WeightSpaceGP(polynomial(), GaussianLikelihood(batch_shape=TWO)),
    "mean": lambda: WeightSpaceGP(polynomial(), GaussianLikelihood(), gpytorch.means.ConstantMeanGrad()),
    "batch of means": lambda: WeightSpaceGP(
        polynomial(), GaussianLikelihood(), gpytorch.means.ConstantMean(batch_shape=TWO)
    ),
    "batch of linear means": lambda: WeightSpaceGP(
        polynomial(), GaussianLikelihood(), gpytorch.means.LinearMean(INPUTS, batch_shape=TWO)
    ),
    "kernel": lambda: WeightSpaceGP(RBFKernel(), GaussianLikelihood()),
    "exact kernel": lambda: WeightSpaceGP(ScaleKernel(PolynomialKernel(power=2)), GaussianLikelihood()),
    "sum with an exact kernel": lambda: WeightSpaceGP(polynomial() + RBFKernel(), GaussianLikelihood()),
    "batch inside a sum": lambda: WeightSpaceGP(
        rfgp.approximate(RBFKernel() + ScaleKernel(RBFKernel(), batch_shape=TWO), 12, input_dim=INPUTS, seed=0),
        GaussianLikelihood(),
    ),
    "batch of scales": lambda: WeightSpaceGP(polynomial(batch_shape=TWO), GaussianLikelihood()),
    "batch of scales that are not the classes": lambda: WeightSpaceGP(
        polynomial(batch_shape=TWO), likelihood_for("dirichlet")
    ),
    "batch of kernels": lambda: WeightSpaceGP(
        rfgp.approximate(PolynomialKernel(power=2, batch_shape=TWO), 12, input_dim=INPUTS, seed=0),
        DirichletClassificationLikelihood(num_classes=2),
    ),
}


@pytest.mark.parametrize("case", UNSUPPORTED)
def test_unsupported_parts_raise(case):
    with pytest.raises(ValueError, match=r"expected .*(use|wrap|subtract|batch|fit)"):
        UNSUPPORTED[case]()


@pytest.mark.parametrize("outside", [False, True], ids=["sum", "scaled sum"])
def test_a_sum_of_kernels_is_the_kernel_of_their_features(outside):
    x, y, _ = rows_for("gaussian", ROWS)
    parts = [polynomial(seed=0), polynomial(width=6, seed=1)]
    parts[1].outputscale = 0.2
    kernel = ScaleKernel(parts[0] + parts[1]) if outside else parts[0] + parts[1]
    likelihood, test = GaussianLikelihood(), points()
    with torch.no_grad():
        model = WeightSpaceGP(kernel, likelihood).condition(x, y)
        scale = kernel.outputscale if outside else 1.0
        known = [scale * (parts[0](a, b).to_dense() + parts[1](a, b).to_dense()) for a in (x, test) for b in (x, test)]
        noise = likelihood.noise.expand(len(x))
        mean, covariance = dense.posterior(known[0], known[1], known[3], noise, y)
        predicted = model.posterior(test)
        torch.testing.assert_close(predicted.mean, mean, **ROUNDING)
        torch.testing.assert_close(predicted.covariance_matrix, covariance, **ROUNDING)
        torch.testing.assert_close(model.log_marginal_likelihood(), dense.evidence(known[0], noise, y), **ROUNDING)
    assert model.statistics.gram.shape[-1] == 18
    parts[1].outputscale = 0.3  # which is part of the features, unlike the scale around the sum
    with pytest.raises(ValueError, match=r"outputscale.*again"):
        model.posterior(test)


def products_used(model, arguments, monkeypatch):
    """The dtypes of the Gram products of a fit."""
    used, add = set(), GramStatistics.add

    def recording(self, features, rows, product_dtype=torch.float64):
        used.add(product_dtype)
        return add(self, features, rows, product_dtype)

    with torch.no_grad(), monkeypatch.context() as patch:
        patch.setattr(GramStatistics, "add", recording)
        model.condition(*arguments)
    return used


@pytest.mark.parametrize(
    ("share", "dtype", "chosen", "expected"),
    [
        (0.02, torch.float32, None, torch.float32),
        (0.009, torch.float32, None, torch.float64),
        (0.02, torch.float64, None, torch.float64),
        (0.009, torch.float32, torch.float32, torch.float32),
        (0.02, torch.float32, torch.float64, torch.float64),
    ],
)
@pytest.mark.parametrize("kind", ["gaussian", "complex", "fixed"])
def test_products_are_in_float32_only_where_the_noise_allows_it(kind, share, dtype, chosen, expected, monkeypatch):
    x, y, _ = rows_for(kind, ROWS)
    noise = share * float(polynomial().double()(x.double(), diag=True).detach().max())
    x, y = x.to(dtype), y.to(dtype.to_complex() if kind == "complex" else dtype)
    likelihood = likelihood_for(kind)
    variances = None
    if kind == "fixed":
        variances = torch.full((ROWS,), 100.0 * noise, dtype=dtype)
        variances[5] = noise
    else:
        likelihood.noise = noise
    model = WeightSpaceGP(polynomial(), likelihood, product_dtype=chosen).to(dtype)
    assert products_used(model, (x, y, variances), monkeypatch) == {expected}


@pytest.mark.parametrize(("alpha", "expected"), [(1e-4, torch.float32), (5.0, torch.float32), (200.0, torch.float64)])
def test_products_for_class_labels(alpha, expected, monkeypatch):
    x, labels, _ = rows_for("dirichlet", ROWS)
    x = torch.nn.functional.normalize(x, dim=-1)
    likelihood = DirichletClassificationLikelihood(labels, alpha)
    model = WeightSpaceGP(polynomial(), likelihood).float()
    assert products_used(model, (x.float(), labels), monkeypatch) == {expected}


def test_float32_with_many_rows_and_little_noise():
    num_rows, dims = 32_000, 6
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(num_rows, dims, generator=generator) / dims**0.5
    y = torch.sin(3.0 * x.sum(-1)) + 0.01 * torch.randn(num_rows, generator=generator)
    results = {}
    for dtype in (torch.float32, torch.float64):
        likelihood = GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(1e-6))
        likelihood.noise = 1e-4
        exact = ScaleKernel(PolynomialKernel(power=4))
        kernel = rfgp.approximate(exact, 128, input_dim=dims, seed=0)
        model = ExactModel(x.to(dtype), y.to(dtype), likelihood, kernel).to(dtype).train()
        mll = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)
        gradients = []
        for _ in range(2 if dtype == torch.float32 else 1):
            optimizer.zero_grad()
            loss = -mll(model(x.to(dtype)), y.to(dtype))
            loss.backward()
            gradients.append({name: p.grad.double() for name, p in model.named_parameters()})
            assert all(g.isfinite().all() for g in gradients[-1].values())
            optimizer.step()
        results[dtype] = gradients[0]
        if dtype == torch.float32:
            with torch.no_grad():
                latent = model.eval()(x[:100].to(dtype) + 0.01)
                assert (latent.lazy_covariance_matrix.diagonal() > 0).all() and latent.mean.isfinite().all()
    for name, expected in results[torch.float64].items():
        assert (results[torch.float32][name] - expected).abs().max() <= 1e-3 * expected.abs().max(), name


@pytest.mark.parametrize("num_columns", [1, 3])
def test_a_kernel_with_a_center_names_another_number_of_columns(num_columns):
    x, y = torch.randn(30, 2), torch.randn(30)
    kernel = rfgp.approximate(RBFKernel(), 8, input_dim=2, seed=0)
    model = WeightSpaceGP(kernel, GaussianLikelihood())
    rfgp.fit(model, x, y, max_evaluations=1, progress=False)
    assert kernel.maps.center is not None
    with pytest.raises(ValueError, match="2 columns"):
        model.posterior(torch.randn(4, num_columns))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("inputs", "targets", "message"), [(1e6, 0.0, "inputs"), (0.0, 1e8, "targets"), (1e3, 1e3, None)]
)
def test_digits_that_float32_loses_are_told_once(dtype, inputs, targets, message):
    x, y = torch.rand(50, 2, dtype=torch.float64), 50.0 * torch.rand(50, dtype=torch.float64)
    kernel = rfgp.approximate(gpytorch.kernels.RBFKernel().to(dtype), 8, input_dim=2, seed=0)
    model = WeightSpaceGP(kernel, gpytorch.likelihoods.GaussianLikelihood().to(dtype))
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for _ in range(2):
            model.condition((x + inputs).to(dtype), (y + targets).to(dtype))
    found = [str(warning.message) for warning in told if "are rounded to" in str(warning.message)]
    assert len(found) == int(message is not None and dtype == torch.float32)
    assert not found or found[0].startswith(message)
