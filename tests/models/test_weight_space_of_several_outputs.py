"""WeightSpaceGP of several outputs: updates, loaders, state, copies, sampled functions, gradients and precision."""

import copy
import io
import pickle

import gpytorch
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from moments import check_moments
from output_problems import OUTPUT_KERNELS, dense_noise, output_model, output_noise, output_rows
from problems import randomised
from torch.utils.data import DataLoader, TensorDataset

import rfgp
from rfgp.functionals import Curl, Divergence, Gradient, Vorticity
from rfgp.kernels import CurlFreeKernel, DivergenceFreeKernel, HelmholtzKernel
from rfgp.likelihoods import MultitaskMultivariateNormal, MultivariateNormal
from rfgp.models import WeightSpaceGP

pytestmark = [
    pytest.mark.usefixtures("float64_default"),
    pytest.mark.filterwarnings("ignore:.*exceed the .* training rows"),
]

ROWS = 40
SUMS = ("gram", "cross", "target_gram", "count", "log_noise")
ROUNDING = {"rtol": 1e-9, "atol": 1e-9}
MODELS = [
    *[(name, noise) for name in ("curl-free", "multitask") for noise in ("one", "per task", "full", "fixed+learned")],
    *[("laplacian", noise) for noise in ("one", "fixed+learned")],
    ("mixed sum", "full"),
    ("one measure", "per task"),
    ("coregionalization", "fixed"),
]
models = pytest.mark.parametrize(("name", "noise"), MODELS)
few_models = pytest.mark.parametrize(("name", "noise"), [MODELS[i] for i in (0, 2, 3, 5, 6, 8, 10)])


def points(num_points=4):
    return torch.randn(num_points, 2, generator=torch.Generator().manual_seed(9))


def rows_for(name, noise, num_rows=ROWS, pattern="none", seed=1):
    """Arguments (x, y, noise) of fit and update; noise is None where it is learned."""
    return *output_rows(name, num_rows, pattern, seed), output_noise(name, num_rows) if "fixed" in noise else None


def growing_rows(name, noise):
    """Rows that are complete at first; then an output is missing, then several patterns and empty rows appear."""
    x, y, variances = rows_for(name, noise)
    if y.dim() == 1:
        y[25::3] = float("nan")
        return x, y, variances
    y[13:25, 0] = float("nan")
    y[25:] = output_rows(name, ROWS, "random", seed=3)[1][25:]
    y[30:33] = float("nan")
    return x, y, variances


def part(arguments, index):
    return tuple(None if a is None else a[index] for a in arguments)


def batches(arguments, size):
    known = [a for a in arguments if a is not None]
    return [tuple(a[start : start + size] for a in known) for start in range(0, len(known[0]), size)]


def fitted(name, noise, arguments=None, **options):
    with torch.no_grad():
        model = output_model(name, noise, num_rows=ROWS, **options)
        return model.condition(*(rows_for(name, noise, pattern="random") if arguments is None else arguments))


def summary(model):
    """Evidence, and mean and covariance at points."""
    with torch.no_grad():
        latent = model.posterior(points())
        return model.log_marginal_likelihood(), latent.mean, latent.covariance_matrix


def assert_same_model(a, b, **tolerance):
    """Equal posteriors and evidence; bit for bit where no tolerance is given."""
    torch.testing.assert_close(summary(a), summary(b), **(tolerance or {"rtol": 0.0, "atol": 0.0}))


CHUNKS = (slice(0, 13), slice(13, 24), slice(24, 25), slice(25, ROWS))


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)], ids=str)
@models
def test_updates_equal_one_fit_in_any_order_as_new_patterns_appear(name, noise, order):
    arguments = growing_rows(name, noise)
    whole = fitted(name, noise, arguments)
    with torch.no_grad():
        model = output_model(name, noise)
        for index in order:
            assert model.update(*part(arguments, CHUNKS[index])) is model
    assert_same_model(model, whole, **ROUNDING)
    assert len(model.training_data) == 4
    torch.testing.assert_close(torch.cat([x for x, _, _ in sorted_data(model, order)]), arguments[0])


def sorted_data(model, order):
    return [model.training_data[order.index(index)] for index in range(4)]


@few_models
def test_a_fit_forgets_earlier_data_and_patterns(name, noise):
    complete = rows_for(name, noise)
    with torch.no_grad():
        model = output_model(name, noise).condition(*growing_rows(name, noise)).condition(*complete)
    assert_same_model(model, fitted(name, noise, complete), **ROUNDING)


@few_models
def test_a_loader_gives_the_fit_of_its_rows(name, noise):
    arguments = growing_rows(name, noise)
    whole, known = fitted(name, noise, arguments), [a for a in arguments if a is not None]
    loaders = [
        batches(arguments, 11),
        (list(batch) for batch in batches(arguments, 16)),
        DataLoader(TensorDataset(*known), batch_size=9, shuffle=True, generator=torch.Generator().manual_seed(0)),
    ]
    for loader in loaders:
        with torch.no_grad():
            model = output_model(name, noise).condition(loader)
        assert sum(len(x) for x, _, _ in model.training_data) == ROWS
        assert_same_model(model, whole, **ROUNDING)


@few_models
def test_loaders_carry_gradients(name, noise):
    arguments, gradients = growing_rows(name, noise), []
    for way in (lambda m: m.condition(*arguments), lambda m: m.condition(batches(arguments, 11))):
        model = output_model(name, noise)
        value = way(model).log_marginal_likelihood()
        gradients.append(torch.autograd.grad(value, [p for p in model.parameters() if p.requires_grad]))
    assert all(bool((g != 0).any()) for g in gradients[0])
    for other in gradients[1:]:
        torch.testing.assert_close(other, gradients[0], **ROUNDING)


@few_models
def test_a_failed_update_leaves_every_bit(name, noise):
    model = fitted(name, noise)
    before, statistics, data = summary(model), model.statistics, model.training_data
    sums = {key: getattr(statistics, key).clone() for key in SUMS}
    x, y, variances = growing_rows(name, noise)
    broken = torch.where(torch.arange(2) == 1, float("inf"), x)
    for bad in ((broken, y, variances), (x, y / 0.0, variances), (x, y[:-1], variances), (x.float(), y, variances)):
        with pytest.raises(ValueError, match="expected"):
            model.update(*bad)
    later = [*batches((x, y, variances), 10)[:3], (broken, y)]
    with pytest.raises(ValueError, match="expected"):
        model.condition(later)
    assert model.statistics is statistics and model.training_data is data
    for key in SUMS:
        assert torch.equal(getattr(statistics, key), sums[key])
    for value, expected in zip(summary(model), before, strict=True):
        assert torch.equal(value, expected)


@pytest.mark.parametrize("input_dim", [None, 2], ids=["lazy", "eager"])
@models
def test_state_of_a_fitted_model(name, noise, input_dim):
    model = fitted(name, noise, growing_rows(name, noise), input_dim=input_dim)
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    fresh = output_model(name, noise, input_dim=input_dim, seed=99, num_rows=ROWS)
    randomised(fresh, seed=8)
    fresh.load_state_dict(torch.load(file, weights_only=True))
    assert_same_model(fresh, model)
    more = rows_for(name, noise, 20, "random", seed=6)
    with torch.no_grad():
        assert_same_model(fresh.update(*more), model.update(*more))


def through_pickle(model):
    return pickle.loads(pickle.dumps(model))


@pytest.mark.parametrize("clone", [copy.deepcopy, through_pickle])
@few_models
def test_copies(name, noise, clone):
    arguments = growing_rows(name, noise)
    model = output_model(name, noise).condition(*part(arguments, slice(0, 13)))
    model.weight_posterior()
    before = summary(model)
    twin = clone(model)
    assert_same_model(twin, model, **ROUNDING)
    with torch.no_grad():
        twin.update(*part(arguments, slice(13, ROWS)))
    assert_same_model(twin, fitted(name, noise, arguments), **ROUNDING)
    torch.testing.assert_close(summary(model), before, rtol=0.0, atol=0.0)


@few_models
def test_a_copy_of_an_unfitted_lazy_model_builds_the_same_map(name, noise):
    model = output_model(name, noise, input_dim=None)
    twin, arguments = through_pickle(model), growing_rows(name, noise)
    with torch.no_grad():
        assert_same_model(twin.condition(*arguments), model.condition(*arguments))


FREE = ("outputscale", "noise", "constant", "weights", "bias", "covar_factor", "var", "strength")


@few_models
def test_parameters_that_need_no_new_fit_and_those_that_do(name, noise):
    arguments = growing_rows(name, noise)
    for parameter_name in dict(output_model(name, noise).named_parameters()):
        is_free = any(parameter_name.endswith(end) for end in FREE) or "task_noise" in parameter_name
        is_free &= "second_noise" not in parameter_name
        model, fresh = fitted(name, noise, arguments), output_model(name, noise, num_rows=ROWS)
        before = summary(model)
        for each in (model, fresh):
            dict(each.named_parameters())[parameter_name].data += 0.3
        if not is_free:
            assert "lengthscale" in parameter_name or "second_noise" in parameter_name
            with pytest.raises(ValueError, match=r"expected the parameters .* again"):
                model.posterior(points())
            continue
        with torch.no_grad():
            fresh.condition(*arguments)
        assert_same_model(model, fresh, **ROUNDING)
        assert not torch.allclose(summary(model)[0], before[0])


@few_models
def test_new_weights_make_the_statistics_stale(name, noise):
    model = fitted(name, noise)
    before = summary(model)
    assert model.resample(torch.Generator().manual_seed(5)) is model
    uses = [
        lambda: model.posterior(points()),
        lambda: model.log_marginal_likelihood(),
        lambda: model.sample_functions(1),
        lambda: model.update(*rows_for(name, noise)),
    ]
    for use in uses:
        with pytest.raises(ValueError, match=r"random weights.*again"):
            use()
    with torch.no_grad():
        model.condition(*rows_for(name, noise, pattern="random"))
    assert not torch.allclose(summary(model)[1], before[1])


@pytest.mark.parametrize("pattern", ["none", "random"])
@few_models
def test_sampled_functions_and_draws_at_points_have_the_moments_of_the_posterior(name, noise, pattern):
    model, x = fitted(name, noise, rows_for(name, noise, pattern=pattern)), points(2)
    torch.manual_seed(7)
    with torch.no_grad():
        latent = model.posterior(x)
        mean, covariance = latent.mean.flatten(), latent.covariance_matrix
        functions = model.sample_functions(400)(x)
        assert functions.shape == (400, *latent.mean.shape)
        check_moments(functions.flatten(1), mean, covariance)
        check_moments(latent.rsample(torch.Size([20_000])).flatten(1), mean, covariance)


@models
def test_a_sampled_function_is_one_function_that_can_be_evaluated_anywhere(name, noise):
    model, x = fitted(name, noise), points(9)
    outputs = OUTPUT_KERNELS[name][1]
    shape = () if outputs == 1 else (outputs,)
    with torch.no_grad():
        first, second = model.sample_functions(2)
        values = first(x)
        assert values.shape == (9, *shape)
        torch.testing.assert_close(first(x[4:7]), values[4:7])
        torch.testing.assert_close(first(x.expand(2, 3, 9, 2)), values.expand(2, 3, 9, *shape))
        assert not torch.allclose(second(x), values)
        assert first(torch.randn(30_000, 2)).shape == (30_000, *shape)


def jacobian(field, x):
    """The derivatives (N, T, d) of a field at points."""
    x = x.clone().requires_grad_()
    return torch.stack([torch.autograd.grad(column.sum(), x, retain_graph=True)[0] for column in field(x).mT], dim=1)


BASES = {"rbf": RBFKernel, "matern 5/2": lambda: MaternKernel(nu=2.5)}


@pytest.mark.parametrize("pattern", ["complete", "missing"])
@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("base", BASES)
@pytest.mark.parametrize("kind", [CurlFreeKernel, DivergenceFreeKernel, HelmholtzKernel])
def test_sampled_fields_have_no_curl_or_no_divergence(kind, base, dim, pattern):
    x, y = torch.randn(60, dim), torch.randn(60, dim)
    if pattern == "missing":
        y[torch.rand(60, dim) < 0.3] = float("nan")
    kernel = rfgp.approximate(randomised(kind(BASES[base]())), 64, input_dim=dim, seed=0)
    model = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(dim)).requires_grad_(False).condition(x, y)
    at = 2.0 * torch.randn(20, dim)
    fields = [*model.sample_functions(5), lambda x: model.posterior(x).mean]
    for field in fields:
        derivatives = jacobian(field, at)
        size = derivatives.square().sum((-2, -1)).mean().sqrt()
        curl = (derivatives - derivatives.mT).abs().max() / size
        divergence = derivatives.diagonal(dim1=-2, dim2=-1).sum(-1).abs().max() / size
        assert (curl < 1e-6) == (kind is CurlFreeKernel)
        assert (divergence < 1e-6) == (kind is DivergenceFreeKernel)


@pytest.mark.parametrize("dim", [2, 3])
@pytest.mark.parametrize("kind", [CurlFreeKernel, DivergenceFreeKernel])
def test_what_vanishes_is_predicted_to_vanish(kind, dim):
    x, y = torch.randn(60, dim), torch.randn(60, dim)
    kernel = rfgp.approximate(kind(RBFKernel()), 64, input_dim=dim, seed=0)
    with torch.no_grad():
        model = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(dim)).condition(x, y)
        derivatives = model.posterior(x, Gradient())
        curl = model.posterior(x, Vorticity() if dim == 2 else Curl())
        divergence = model.posterior(x, Divergence())
    absent, present = (curl, divergence) if kind is CurlFreeKernel else (divergence, curl)
    assert absent.mean.abs().max() <= 1e-10 * derivatives.mean.abs().max()
    assert absent.lazy_covariance_matrix.diagonal().max() <= 1e-20 * derivatives.variance.max()
    assert present.mean.abs().max() >= 0.1 * derivatives.mean.abs().max()


@few_models
def test_chunks_of_rows_change_nothing(name, noise, monkeypatch):
    arguments, x = growing_rows(name, noise), points(23)
    vectors = torch.randn(23 * OUTPUT_KERNELS[name][1], 2)
    torch.manual_seed(3)
    functions = fitted(name, noise, arguments).sample_functions(1)

    def everything():
        model = output_model(name, noise)
        evidence = model.condition(*arguments).log_marginal_likelihood()
        gradients = torch.autograd.grad(evidence, [p for p in model.parameters() if p.requires_grad])
        with torch.no_grad():
            latent = model.condition(*arguments).posterior(x)
            lazy = latent.lazy_covariance_matrix
            torch.manual_seed(5)
            draws = latent.rsample(torch.Size([2]))
            parts = [latent.mean, latent.variance, lazy.to_dense(), lazy @ vectors, functions[0](x), draws]
            return [evidence, *gradients, *parts]

    whole, seen = everything(), []

    def chunks(num_rows, *_):
        seen.append(num_rows)
        return [slice(start, min(start + 4, num_rows)) for start in range(0, num_rows, 4)]

    for module in ("posterior.products", "sums.statistics", "posterior.covariance", "posterior.regression"):
        monkeypatch.setattr(f"rfgp.inference.{module}.row_chunks", chunks)
    torch.testing.assert_close(everything(), whole, rtol=1e-9, atol=1e-11)
    assert 23 in seen and max(seen) <= ROWS


def test_many_rows_are_predicted_in_chunks():
    model, x = fitted("curl-free", "per task"), points(20_000)
    with torch.no_grad():
        latent = model.posterior(x)
        mean, variance = latent.mean, latent.variance
        for rows in (slice(0, 3), slice(8190, 8195), slice(19_997, 20_000)):
            piece = model.posterior(x[rows])
            torch.testing.assert_close(mean[rows], piece.mean, rtol=1e-11, atol=1e-12)
            torch.testing.assert_close(variance[rows], piece.variance, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("pattern", ["none", "random"])
@pytest.mark.parametrize("name", ["curl-free", "multitask", "laplacian"])
def test_parts_of_the_covariance(name, pattern):
    with torch.no_grad():
        latent = fitted(name, "one", rows_for(name, "one", pattern=pattern)).posterior(points(8))
        dense, lazy = latent.covariance_matrix, latent.lazy_covariance_matrix
        size = len(dense)
        torch.testing.assert_close(lazy[2:5, :4].to_dense(), dense[2:5, :4])
        torch.testing.assert_close(lazy.diagonal(), dense.diagonal())
        torch.testing.assert_close(lazy @ torch.ones(size), dense.sum(-1))
        torch.testing.assert_close((lazy * 2.0).to_dense(), dense * 2.0)
        torch.testing.assert_close(lazy.mT.to_dense(), dense)
        torch.testing.assert_close(lazy.root_decomposition().to_dense(), dense)
        torch.testing.assert_close(lazy.expand(2, size, size).to_dense(), dense.expand(2, size, size))
        torch.testing.assert_close(lazy.unsqueeze(0).to_dense(), dense.unsqueeze(0))
        assert latent.expand(torch.Size([2])).rsample(torch.Size([3])).shape == (3, 2, *latent.mean.shape)
        torch.testing.assert_close((lazy + torch.eye(size)).to_dense(), dense + torch.eye(size))
        outputs = OUTPUT_KERNELS[name][1]
        assert type(latent) is (MultivariateNormal if outputs == 1 else MultitaskMultivariateNormal)
        some = latent[1:4]
        torch.testing.assert_close(some.mean, latent.mean[1:4])
        own = slice(outputs, 4 * outputs)
        torch.testing.assert_close(some.covariance_matrix, dense[own, own])


@models
def test_likelihoods_add_their_noise(name, noise):
    model, x = fitted(name, noise), points(ROWS)
    with torch.no_grad():
        latent = model.posterior(x)
        noisy = model.likelihood(latent)
        outputs = OUTPUT_KERNELS[name][1]
        expected = latent.covariance_matrix + dense_noise(model.likelihood, ROWS, outputs)
        torch.testing.assert_close(noisy.mean, latent.mean)
        torch.testing.assert_close(noisy.covariance_matrix, expected)
        torch.testing.assert_close(noisy.variance.flatten(), expected.diagonal())
        y = torch.randn(latent.mean.shape)
        reference = torch.distributions.MultivariateNormal(latent.mean.flatten(), expected)
        torch.testing.assert_close(noisy.log_prob(y), reference.log_prob(y.flatten()))
        if "fixed" not in noise or outputs == 1:  # GPyTorch's likelihood of one output adds this noise twice
            return
        other = model.likelihood(model.posterior(points()), noise=output_noise(name, 4))
        extra = model.likelihood.second_noise if "learned" in noise else 0.0
        torch.testing.assert_close(other.variance, model.posterior(points()).variance + output_noise(name, 4) + extra)


@pytest.mark.parametrize("pattern", ["none", "random"])
@pytest.mark.parametrize("name", ["curl-free", "multitask", "laplacian"])
def test_gradients_with_respect_to_points(name, pattern):
    model = fitted(name, "one", rows_for(name, "one", pattern=pattern)).requires_grad_(False)
    x = points(3).requires_grad_()
    columns = torch.randn(3 * OUTPUT_KERNELS[name][1], 2)
    for output in (
        lambda x: model.posterior(x).mean,
        lambda x: model.posterior(x).variance,
        lambda x: model.posterior(x).lazy_covariance_matrix @ columns,
    ):
        assert torch.autograd.gradcheck(output, x, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("pattern", ["none", "random"])
@few_models
def test_predictions_carry_gradients_of_all_parameters_where_gpytorch_is_told_so(name, noise, pattern):
    arguments, model = rows_for(name, noise, pattern=pattern), output_model(name, noise)
    parameters = dict(model.named_parameters())
    weights = torch.randn(2, *output_rows(name, 4)[1].shape)

    def predictions():
        latent = model.condition(*arguments).posterior(points())
        return (weights * torch.stack([latent.mean, latent.variance])).sum()

    with gpytorch.settings.detach_test_caches(False):
        value = predictions()
        gradients = torch.autograd.grad(value, list(parameters.values()))
    for (parameter_name, parameter), gradient in zip(parameters.items(), gradients, strict=True):
        start, values, step = parameter.detach().clone(), [], 1e-5
        for sign in (1.0, -1.0):
            with torch.no_grad():
                parameter.copy_(start + sign * step)
                values.append(predictions())
                parameter.copy_(start)
        difference = (values[0] - values[1]) / (2.0 * step)
        torch.testing.assert_close(gradient.sum(), difference, rtol=1e-6, atol=1e-8, msg=parameter_name)
    torch.testing.assert_close(predictions().detach(), value.detach())


@pytest.mark.parametrize(("noise", "scale"), [("one", 1e-4), ("per task", 1e-4), ("full", 0.5), ("fixed", 1e-4)])
@pytest.mark.parametrize("name", ["curl-free", "multitask"])
@pytest.mark.parametrize("pattern", ["none", "random"])
def test_float32_at_little_noise_is_close_to_float64(name, noise, scale, pattern):
    x, y, _ = rows_for(name, noise, 1000, pattern)
    y = torch.where(torch.isnan(y), y, torch.sin(x.sum(-1, keepdim=True)).expand_as(y))
    exact = output_model(name, noise, width=32)
    for parameter_name, parameter in exact.likelihood.named_parameters():
        if parameter_name in ("raw_noise", "raw_task_noises"):
            exact.likelihood.initialize(**{parameter_name[4:]: torch.full_like(parameter, scale)})
    variances = scale * torch.ones(y.shape) if noise == "fixed" else None
    model = copy.deepcopy(exact).float()
    with torch.no_grad():
        exact.condition(x, y, variances)
        model.condition(x.float(), y.float(), None if variances is None else variances.float())
        expected, latent = exact.posterior(points()), model.posterior(points().float())
        pairs = [(latent.mean, expected.mean), (latent.covariance_matrix, expected.covariance_matrix)]
        pairs.append(tuple(each.lazy_covariance_matrix.diagonal() for each in (latent, expected)))
        for value, reference in pairs:
            assert value.dtype == torch.float32
            assert (value - reference).abs().max() <= 1e-3 * reference.abs().max()
        value, reference = model.log_marginal_likelihood(), exact.log_marginal_likelihood()
        assert value.dtype == torch.float64
        assert (value - reference).abs() <= 1e-3 * reference.abs()


@few_models
def test_batches_of_points_raise(name, noise):
    with pytest.raises(ValueError, match=r"expected inputs of shape \(N, d\).*got \(2, 4, 2\)"):
        fitted(name, noise).posterior(points().expand(2, 4, 2))


@pytest.mark.parametrize("count", [0, -1, 1.5])
def test_numbers_of_functions_that_raise(count):
    with pytest.raises(ValueError, match="expected a positive integer for num_functions"):
        fitted("curl-free", "one").sample_functions(count)


def test_a_single_output_takes_columns_or_rows():
    x, y, _ = rows_for("laplacian", "one", pattern="random")
    with torch.no_grad():
        assert_same_model(fitted("laplacian", "one", (x, y)), fitted("laplacian", "one", (x, y.unsqueeze(-1))))


def test_one_noise_for_all_outputs_is_that_of_a_multitask_likelihood():
    arguments = rows_for("curl-free", "one", pattern="random")
    model = fitted("curl-free", "one", arguments)
    other = WeightSpaceGP(model.covar_module, GaussianLikelihood(), model.mean_module)
    other.likelihood.noise = model.likelihood.noise.detach()
    with torch.no_grad():
        assert_same_model(other.condition(*arguments), model, **ROUNDING)
