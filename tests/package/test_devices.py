"""Nothing leaves the device that a model is on, but what is listed here."""

from __future__ import annotations

import copy
import pickle

import gpytorch
import pytest
import torch
from cases import map_examples
from contract import MODELS
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import (
    GaussianLikelihood,
    MultitaskGaussianLikelihood,
)
from latent_contract import LATENT, VariationalCase
from output_problems import (
    OUTPUT_KERNELS,
    ExactOutputModel,
    output_kernel,
    output_likelihood,
    output_mean,
    output_model,
    output_rows,
)
from pretend_device import DOWN, PRETEND, SYNC, UP, Watch, numbers
from problems import COMPOSITIONS, FORMS, KERNELS, KINDS, ExactModel, composition, model_for, rows_for

import rfgp
from rfgp import approximation, diagnostics, likelihoods, models
from rfgp import functionals as operators
from rfgp.approximation import selection
from rfgp.inference import GramStatistics
from rfgp.likelihoods import DirichletClassificationLikelihood

DEVICES = [PRETEND, *([torch.device("cuda")] if torch.cuda.is_available() else [])]
CPU, DOUBLE = torch.device("cpu"), torch.float64
devices = pytest.mark.parametrize("device", DEVICES, ids=str)

# What is copied between device and CPU by design, by the function that does.
BY_DESIGN = {
    # random draws, which a seed makes the same on every device
    "features/random_weights.py:RandomWeights.resample": "new weights",
    "approximation/map_family.py:MapFamily.make": "the weights of a map",
    "approximation/landmarks.py:_random_rows": "an order of rows",
    "approximation/selection/posterior.py:PosteriorTest.__init__": "an order of rows",
    "training/minibatches.py:RowBatches.__iter__": "an order of rows",
    "training/exact_stages.py:Blocks.positions": "the numbers of the rows of blocks",
    "training/session.py:Training._loss_by_features": "some rows",
    "training/starts.py:_start_mean": "a number, by GPyTorch",
    "training/fitting.py:fit": "some rows",
    "training/starts.py:median_distances": "some rows",
    "training/starts.py:start_from_data": "some rows",
    "data/reservoir.py:_candidates.<genexpr>": "the numbers of random rows",
    "data/reservoir.py:_smallest.<genexpr>": "the numbers of random rows",
    "training/loader.py:first_pass.<genexpr>": "the numbers of random rows",
    # NumPy, SciPy and scikit-learn
    "features/fourier.py:_orthogonal_pair": "a special function",
    "features/spectra/special_functions.py:gamma_root": "a special function",
    "features/spectra/special_functions.py:scaled_bessel": "a special function",
    "features/spectra/spherical.py:Spherical.of_distance": "a special function",
    "inference/latent/class_prediction.py:ClassConditioning.groups": "the numbers of the points of blocks",
    "inference/local/draws.py:LocalDraws.__call__": "the bytes of known points",
    "inference/local/prediction.py:LocalConditioning._of_blocks": "the numbers of the points of blocks",
    "inference/local/draws.py:ResidualDraws.at": "the numbers of the points of blocks",
    "inference/local/partition.py:BlockPartition.__init__": "the tree of blocks",
    "inference/local/partition.py:BlockPartition.extended": "the tree of blocks",
    "inference/local/partition.py:BlockPartition.place": "the tree of blocks",
    "inference/local/prediction.py:LocalConditioning._near_rows": "the numbers of the points of blocks",
    "inference/local/rows.py:LocalRows.block_of": "the blocks of all rows, once",
    "inference/latent/local_laplace.py:BlockPrior.of_rows.<genexpr>": "the numbers of the rows of blocks",
    "inference/local/cells.py:CellSystem.independent": "the numbers of outputs",
    "inference/local/regression.py:LocalRegression.solved": "the numbers of the rows of blocks",
    "inference/local/rows.py:sums_of_blocks.<listcomp>": "the numbers of the rows of blocks",
    "inference/local/systems.py:LocalSystems._one_by_one": "the numbers of the groups of a system",
    "inference/noise/correlated.py:CorrelatedNoise.rows_of": "which outputs are missing together",
    "inference/noise/raised.py:RaisedNoise._by_covariance": "which outputs are missing together",
    "inference/noise/raised.py:RaisedNoise._observed": "which outputs are missing together",
    "linalg/gram_matrix.py:members_of_groups": "which groups the rows of a chunk are in",
    "approximation/landmarks.py:_far_apart": "k-means++",
    "approximation/landmarks.py:choose_landmarks": "the numbers of the landmarks that k-means++ chose",
    "models/weight_space/row_sums.py:input_bounds": "two powers of two of every input",
    "models/least_squares/equations.py:by_lbfgs": "L-BFGS",
    "models/least_squares/equations.py:by_lbfgs.objective": "L-BFGS",
    "training/coordinates.py:Coordinates.assign": "L-BFGS",
    "training/coordinates.py:Coordinates.gradient": "L-BFGS",
    "training/coordinates.py:Coordinates.values": "L-BFGS",
    "training/coordinates.py:Logarithmic._flat": "the bounds of L-BFGS",
    "training/minibatches.py:MinibatchTraining._step": "the point of Adam, with bounds of L-BFGS",
    "training/near_rows.py:near_blocks": "blocks of near rows",
    "training/composite_likelihood.py:CompositeLikelihood.__init__": "the numbers of the rows of blocks",
    # choices, made on a sample of rows
    "features/allocation/pairs.py:sample_pairs": "the variance of every degree",
    "features/allocation/terms.py:series_coefficients": "the coefficients of a kernel",
    "approximation/power_series.py:leaves_out_terms": "which coefficients there are",
    "inference/noise/correlated.py:CorrelatedNoise.weigh": "which outputs are missing together",
    # numbers
    "approximation/spectral_weights.py:GridFrequencies.periods": "the periods of a grid",
    "approximation/spectral_weights.py:GridFrequencies.seen": "the frequencies of a grid",
    "approximation/spectral_weights.py:GridFrequencies.volume": "the volume of a cell of a grid",
    "approximation/spectral_weights.py:SpectralWeights.in_all": "the place of the zero frequency",
    "approximation/spectral_weights.py:SpectralWeights.with_variance": "the place of the zero frequency",
    "features/spectra/matern.py:Matern.beside_zero": "the place of the zero frequency",
    "inference/noise/raised.py:RaisedNoise.num_values": "the numbers of the groups of rows",
    "linalg/frequency_grid.py:half_of": "which frequencies are a half of a grid",
    "inference/posterior/draws.py:FeatureDraws.take": "the numbers of functions",
    "inference/posterior/draws.py:MixtureDraws.__call__": "the numbers of functions",
    "inference/latent/variational.py:expected_log_probabilities": "GPyTorch's constants",
    "inference/latent/latent_terms.py:ClassFunctions.terms": "pairs of classes",
    "inference/latent/latent_terms.py:OneFunction._log_density": "constants of PyTorch's distributions",
    "inference/latent/latent_terms.py:possible_targets": "constants of PyTorch's distributions",
    "likelihoods/quadrature.py:log_mean_density.<genexpr>": "the rule of a quadrature",
    "models/heteroscedastic/model.py:HeteroscedasticGP.__init__": "a distribution that GPyTorch makes",
    "models/localized.py:LocalizedMaclaurinGP._make_map": "the weights of a map",
    "models/weight_space/further_draws.py:_seed": "the checksum of the weights",
    "models/record.py:WeightsCode.of": "the checksum of the weights",
    "models/variational/model.py:WeightSpaceVariationalGP.__init__": "a distribution that GPyTorch makes",
    "functionals/base.py:Operator.of_constant": "the numbers of an operator",
    "training/bound.py:function_values": "two labels",
    "training/parts.py:constrained_values": "the parameters of the summary",
}


class Drawn:
    """Values that differ between devices, whose generators do."""

    def __init__(self, values):
        self.values = values


def values_of(scenario, device):
    """What a scenario returns on a device, on the CPU, and what was copied by functions that may not."""
    torch.manual_seed(0)
    with Watch(device) as watch:
        found = [value.values if isinstance(value, Drawn) else value for value in scenario(device)]
    assert all(value.device.type == device.type for value in found)
    return [numbers(value) for value in found], watch


def check(scenario, device):
    """A scenario copies nothing that it may not, and gives the same values as on the CPU."""
    torch.manual_seed(0)
    expected = list(scenario(CPU))
    found, watch = values_of(scenario, device)
    for one, other in zip(found, expected, strict=True):
        is_drawn = isinstance(other, Drawn)
        other = (other.values if is_drawn else other).detach()
        assert one.shape == other.shape
        if not is_drawn or device == PRETEND:
            torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9, equal_nan=True)
    copies = {place: n for place, n in watch.count(DOWN, UP).items() if place not in BY_DESIGN}
    assert copies == {}


def inputs(num_rows, columns, device, seed=0):
    x = torch.rand(num_rows, columns, generator=torch.Generator().manual_seed(seed), dtype=DOUBLE)
    return x.to(device)


def moments(distribution):
    yield distribution.mean
    yield distribution.variance
    yield distribution.covariance_matrix
    yield Drawn(distribution.rsample())


def gradients(value, module):
    parameters = [p for p in module.parameters() if p.requires_grad]
    found = torch.autograd.grad(value, parameters, allow_unused=True) if parameters else ()
    yield from (g for g in found if g is not None)


@devices
def test_waiting_for_the_device_takes_no_longer_for_more_rows(device, monkeypatch):
    def waits(num_rows):
        with Watch(device) as watch, torch.no_grad():
            x, y = regression(device, num_rows)
            model = models.WeightSpaceGP(approximated(device), GaussianLikelihood().double().to(device))
            assert model.condition(x, y).posterior(x).variance.shape == (num_rows,)
        return watch.count(SYNC)

    def chunks(num_rows, *_):
        return [slice(start, start + 10) for start in range(0, num_rows, 10)]

    few = waits(10)
    for place in (
        "inference.sums.statistics",
        "inference.posterior.regression",
        "inference.posterior.covariance",
        "linalg.gram_matrix",
    ):
        monkeypatch.setattr(f"rfgp.{place}.row_chunks", chunks)
    assert waits(40) == few


# Features and kernels


@devices
@pytest.mark.parametrize("make", map_examples())
def test_feature_maps(make, device):
    def scenario(device):
        feature_map = make().to(device)
        x = torch.nn.functional.normalize(torch.rand(5, feature_map.input_dim, dtype=DOUBLE), dim=-1)
        x = x.to(device).requires_grad_()
        features = feature_map(x)
        yield features
        yield from torch.autograd.grad(features.abs().sum(), [x])
        yield feature_map.target(x, x[:3])
        yield from feature_map.moments(x, x[:3]) or ()
        yield feature_map.resample(torch.Generator().manual_seed(1))(x)
        state = feature_map.state_dict()
        twin = make().to(device)
        twin.load_state_dict(state)
        yield twin(x)

    check(scenario, device)


def of_kernel(kernel, x):
    yield kernel.features(x)
    yield kernel(x).to_dense()
    yield kernel(x, x[:2]).to_dense()
    yield kernel(x, diag=True)
    yield kernel.exact_kernel(x).to_dense()
    residual = kernel.residual_variance(x)
    yield from () if residual is None else [residual]
    variance = approximation.hilbert_schmidt_variance(kernel, x, x[:2])
    yield from () if variance is None else [variance]
    yield from gradients(kernel(x).to_dense().square().sum(), kernel)
    twin = copy.deepcopy(kernel)
    twin.load_state_dict(kernel.state_dict())
    yield twin(x).to_dense()


@devices
@pytest.mark.parametrize(("name", "method"), [(name, m) for name, case in KERNELS.items() for m in case.methods])
def test_kernels(name, method, device):
    def scenario(device):
        case = KERNELS[name]
        exact, x = case.make().to(device), case.inputs(6).to(device)
        yield from of_kernel(rfgp.approximate(exact, 12, train_inputs=x, method=method, seed=0), x)

    check(scenario, device)


@devices
@pytest.mark.parametrize("name", COMPOSITIONS)
@pytest.mark.long("values on a pretend device are slow; maps, kernels and weight space are in make test")
def test_compositions(name, device):
    def scenario(device):
        exact, x = composition(name).to(device), inputs(6, 3, device)
        yield from of_kernel(rfgp.approximate(exact, 48, seed=0), x)

    check(scenario, device)


@devices
@pytest.mark.parametrize("name", OUTPUT_KERNELS)
@pytest.mark.long("values on a pretend device are slow; maps, kernels and weight space are in make test")
def test_kernels_of_several_outputs(name, device):
    def scenario(device):
        kernel = output_kernel(name).double().to(device)
        yield from of_kernel(kernel, inputs(5, 2, device))

    check(scenario, device)


@devices
@pytest.mark.parametrize("method", ["landmarks", "landmarks_kmeans", "auto", "random_maclaurin", "optimized_maclaurin"])
@pytest.mark.long("values on a pretend device are slow; maps, kernels and weight space are in make test")
def test_kernels_made_of_inputs(method, device):
    def scenario(device):
        x = inputs(40, 3, device)
        exact = ScaleKernel(RBFKernel()).double().to(device)
        yield from of_kernel(rfgp.approximate(exact, 12, train_inputs=x, method=method, seed=0), x[:6])

    check(scenario, device)


# Statistics


@devices
@pytest.mark.parametrize("is_complex", [False, True])
def test_statistics(is_complex, device, tmp_path):
    def scenario(device):
        features, targets = inputs(20, 4, device), inputs(20, 2, device, 1)
        features = torch.complex(features, features.square()) if is_complex else features
        weights, groups = inputs(20, 1, device, 2).squeeze(-1), torch.arange(20).to(device) % 2
        first, second = (
            GramStatistics(4, 2, 2, is_complex, device=device, shift=targets[0]).update(
                features[part], targets[part], weights[part], weights[part].log(), groups[part]
            )
            for part in (slice(12), slice(12, None))
        )
        both = first.merge(second)
        assert both.is_finite and both.num_rows == 20
        yield from both.sums().values()
        yield from both.subtract(second).sums().values()
        yield from both.pooled().of_group(0).shifted(targets[1]).sums().values()
        yield from (both.gram, both.cross, both.target_gram, both.targets.variances)
        yield from GramStatistics.concatenate([first, second]).sums().values()
        both.save(tmp_path / "sums")
        yield from GramStatistics.from_state_dict(both.state_dict()).sums().values()
        yield from copy.deepcopy(both).sums().values()

    check(scenario, device)


def test_statistics_of_a_gpu_are_read_without_one(tmp_path, monkeypatch):
    statistics = GramStatistics(2, 1).update(torch.eye(2), torch.ones(2, 1))
    with monkeypatch.context() as patch:
        patch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
        statistics.save(tmp_path / "sums")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert torch.equal(GramStatistics.load(tmp_path / "sums").gram, statistics.gram)


# Models


def of_weight_space(model, data, points):
    is_shared = isinstance(model.likelihood, GaussianLikelihood) and model.num_outputs > 1
    model.condition(*data)
    if not model.features.is_complex or model.noise.is_complex:
        yield from gradients(model.log_marginal_likelihood(), model)
    posterior = model.posterior(points)
    yield from moments(posterior)
    yield posterior.stddev if data[2] is not None or is_shared else model.likelihood(posterior).variance
    if model.block_size is None:
        yield from model.leave_one_out(*data)
    yield Drawn(model.sample_functions(3)(points))
    yield Drawn(model.sample_functions(2, prior=True)[0](points))
    with torch.no_grad():
        model.condition(*data).update(*(None if part is None else part[:5] for part in data))
        yield model.posterior(points).mean
        twin = pickle.loads(pickle.dumps(model))
        twin.load_state_dict(model.state_dict())
        yield twin.posterior(points).mean


def on(device, *parts):
    """Tensors in double precision on a device."""
    exact = {torch.float32: torch.float64, torch.complex64: torch.complex128}
    return [None if part is None else part.to(device, exact.get(part.dtype, part.dtype)) for part in parts]


def regression(device, num_rows=24):
    x = inputs(num_rows, 2, device)
    return x, torch.sin(4.0 * x.sum(-1))


def approximated(device, exact=None, width=12, **options):
    exact = ScaleKernel(RBFKernel()) if exact is None else exact
    return rfgp.approximate(exact.double().to(device), width, input_dim=2, seed=0, **options)


@devices
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_weight_space(kind, form, device):
    def scenario(device):
        model = model_for(kind, form).double().to(device)
        data, (points,) = on(device, *rows_for(kind, 24)), on(device, rows_for(kind, 5, 2)[0])
        yield from of_weight_space(model, data, points)

    check(scenario, device)


@devices
def test_predictions_from_near_rows_stay_on_the_device(device):
    """Near rows are found there; what is made once for all rows is there after the first prediction."""
    copies = []

    def scenario(device):
        x, y = regression(device)
        kernel = approximated(device, method="landmarks", train_inputs=x)
        likelihood = GaussianLikelihood().double().to(device)
        model = models.WeightSpaceGP(kernel, likelihood, block_size=8, num_neighbors=6).condition(x, y)
        for points in (x[:2], x[:5] + 0.01):
            posterior = model.posterior(points)
            yield posterior.mean
            yield posterior.variance
            copies.append(watch.count(DOWN, UP) if device != CPU else None)

    expected = list(scenario(CPU))
    torch.manual_seed(0)
    with Watch(device) as watch:
        found = list(scenario(device))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(numbers(one), other, rtol=1e-9, atol=1e-9)
    assert copies[-2] == copies[-1]


@devices
@pytest.mark.parametrize("case", MODELS, ids=str)
@pytest.mark.long("values on a pretend device are slow; maps, kernels and weight space are in make test")
def test_weight_space_of_the_contract(case, device):
    def scenario(device):
        x, y, given = case.rows()
        (x, y, points), names = on(device, x, y, case.inputs()[1]), given.keys()
        given = dict(zip(names, on(device, *given.values()), strict=True))
        model = case.unfitted().to(device).condition(x, y, **given)
        yield from gradients(model.log_marginal_likelihood(), model)
        torch.manual_seed(0)
        yield from moments(model.posterior(points))
        if model.block_size is None:
            yield from model.leave_one_out(x, y, **given)
        with torch.no_grad():
            half = [{name: value[part] for name, value in given.items()} for part in (slice(12), slice(12, None))]
            model.condition(x[:12], y[:12], **half[0]).update(x[12:], y[12:], **half[1])
            yield model.posterior(points).mean

    check(scenario, device)


SLOW = pytest.mark.long("values on a pretend device are slow; maps, kernels and weight space are in make test")


@devices
@pytest.mark.parametrize(
    "case",
    [case if isinstance(case, VariationalCase) else pytest.param(case, marks=SLOW) for case in LATENT],
    ids=str,
)
def test_models_of_latent_functions_of_the_contract(case, device):
    def scenario(device):
        x, y, points = on(device, case.inputs()[0], case.targets(), case.inputs()[1])
        model = case.unfitted().to(device)
        is_drawn = isinstance(case, VariationalCase) and case.likelihood == "softmax"
        if not is_drawn:
            case.fit(model, x, y)
        torch.manual_seed(0)
        yield from moments(model.posterior(points))
        slopes = gradients(case.evidence(model, x, y), model)
        yield from map(Drawn, slopes) if is_drawn else slopes
        if "update" not in case.refusals:
            yield model.update(x[:3], y[:3]).posterior(points).mean
        twin = pickle.loads(pickle.dumps(model))
        twin.load_state_dict(model.state_dict())
        yield twin.posterior(points).mean

    check(scenario, device)


@devices
@pytest.mark.parametrize("has_pseudo_noise", [False, True])
@pytest.mark.long("values on a pretend device are slow; maps, kernels and weight space are in make test")
def test_improper_complex_targets(has_pseudo_noise, device):
    def scenario(device):
        x, y = regression(device)
        kernel = approximated(device, MultitaskKernel(RBFKernel(), num_tasks=2, rank=2))
        likelihood = likelihoods.ComplexGaussianLikelihood(has_pseudo_noise=has_pseudo_noise)
        model = models.WeightSpaceGP(kernel, likelihood.double().to(device))
        z = torch.complex(y, x[:, 0])
        yield from of_weight_space(model, (x, z, None), x[:4])
        noisy = model.likelihood(model.posterior(x[:4]))
        yield from (noisy.pseudo_variance, noisy.entropy(), noisy.in_region(noisy.mean, 0.9), noisy.log_prob(z[:4]))
        known = likelihoods.FixedNoiseComplexGaussianLikelihood(inputs(24, 1, device, 1).squeeze(-1))
        model = models.WeightSpaceGP(approximated(device), known).condition(x, z)
        yield known(model.posterior(x)).variance

    check(scenario, device)


@devices
def test_batches(device):
    """Fits from a loader, from other statistics, and to many chunks of rows."""

    def scenario(device):
        x, y = regression(device)
        model = models.WeightSpaceGP(approximated(device), GaussianLikelihood().double().to(device), keep_data=True)
        yield model.condition([(x[:10], y[:10]), (x[10:], y[10:])]).posterior(x).mean
        yield diagnostics.kl_to_exact(model, x)
        yield model.load_statistics(model.statistics).posterior(x).variance

    check(scenario, device)


@devices
@pytest.mark.parametrize("name", ["curl-free", "multitask"])
def test_exact_models_of_several_outputs(name, device):
    def scenario(device):
        x, y = on(device, *output_rows(name))
        kernel, likelihood, mean = output_kernel(name), output_likelihood(name, "one"), output_mean(name)
        model = copy.deepcopy(ExactOutputModel(x.cpu(), y.cpu(), likelihood, kernel, mean)).double().to(device)
        yield from of_exact_model(model, x, y)

    check(scenario, device)


@devices
@pytest.mark.parametrize("method", ["fourier", "fourier:complex"])
def test_exact_models(method, device):
    def scenario(device):
        x, y = regression(device)
        model = ExactModel(x, y, GaussianLikelihood(), approximated(device, method=method)).double().to(device)
        yield from of_exact_model(model, x, y)
        yield Drawn(models.sample_functions(model, 2)(x))
        yield rfgp.training.LeaveOneOutPseudoLikelihood(model.likelihood, model.train())(model(x), y)

    check(scenario, device)


def of_exact_model(model, x, y):
    objective = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    yield from gradients(objective(model(x), y), model)
    model.eval()
    yield from moments(model(x[:5]))
    yield model.likelihood(model(x[:5])).variance
    with torch.no_grad():
        yield model(x[:5]).variance


@devices
@pytest.mark.parametrize("options", [{}, {"solver": "lbfgs"}, {"manifold_regularization": 0.01}], ids=str)
def test_least_squares(options, device):
    def scenario(device):
        x, y = on(device, *output_rows("curl-free"))
        # the pretend device has no sparse tensors
        graph = "manifold_regularization" in options
        model = models.VectorLeastSquares(
            output_kernel("curl-free").double().to(device), regularization=0.05, **options
        )
        model.fit(
            *((x[:15], y[:15], x[15:], models.knn_laplacian(numbers(x), 4).to_dense().to(device)) if graph else (x, y))
        )
        yield model.predict(x)

    check(scenario, device)


@devices
def test_localized_models(device):
    def scenario(device):
        x, y = regression(device)
        exact = ScaleKernel(RBFKernel()).double().to(device)
        model = models.LocalizedMaclaurinGP(exact, GaussianLikelihood().double().to(device), num_features=10)
        posterior = model.condition(x, y).posterior(x)
        yield from (posterior.mean, posterior.variance)

    check(scenario, device)


@devices
def test_the_bound_of_all_rows(device):
    def scenario(device):
        x, y = regression(device)
        model = models.WeightSpaceVariationalGP(approximated(device), GaussianLikelihood().double().to(device))
        rfgp.fit(model, x, y, max_evaluations=2, progress=False)
        yield model.posterior(x[:4]).mean

    check(scenario, device)


@devices
@pytest.mark.parametrize("name", ["curl-free", "helmholtz"])
def test_operators(name, device):
    def scenario(device):
        x, y = on(device, *output_rows(name))
        model = models.WeightSpaceGP(output_kernel(name).double(), MultitaskGaussianLikelihood(2).double()).to(device)
        model.condition(x, y)
        for operator in (
            operators.Divergence(),
            operators.CurlFreePart(),
            operators.Potential(),
            operators.Component(0),
        ):
            yield from moments(model.posterior(x[:3], operator))

    check(scenario, device)


@devices
def test_class_probabilities(device):
    def scenario(device):
        x, y = regression(device)
        likelihood = DirichletClassificationLikelihood(num_classes=2).double().to(device)
        labels = (y > 0).long()
        model = models.WeightSpaceGP(approximated(device), likelihood).condition(x, labels)
        probabilities = likelihood.class_probabilities(model.posterior(x))
        yield Drawn(probabilities)
        yield torch.as_tensor(diagnostics.error_rate(probabilities, labels)).to(device)

    check(scenario, device)


# Training, selection and diagnostics


@devices
@pytest.mark.parametrize("strategy", ["evidence", "subset", "blocks"])
@pytest.mark.parametrize("kind", ["weight space", "exact"])
@pytest.mark.long("values on a pretend device are slow; maps, kernels and weight space are in make test")
def test_training(kind, strategy, device):
    def scenario(device):
        x, y = regression(device, 60)
        likelihood = GaussianLikelihood().double()
        model = ExactModel(x, y, likelihood, approximated(device, width=20))
        if kind == "weight space":
            model = models.WeightSpaceGP(approximated(device, width=20), likelihood, gpytorch.means.ConstantMean())
        model = model.double().to(device)
        summary = rfgp.fit(model, x, y, max_evaluations=6, progress=False, strategy=strategy)
        yield torch.tensor([summary.log_marginal_likelihood, summary.initial_log_marginal_likelihood]).to(device)
        yield model.eval()(x[:5]).mean

    check(scenario, device)


@devices
@pytest.mark.parametrize("noise", ["per task", "full"])
@pytest.mark.long("values on a pretend device are slow; maps, kernels and weight space are in make test")
def test_training_of_several_outputs(noise, device):
    def scenario(device):
        x, y = on(device, *output_rows("multitask"))
        model = copy.deepcopy(output_model("multitask", noise)).double().to(device)
        summary = rfgp.fit(model, x, y, max_evaluations=4, progress=False)
        yield torch.tensor([summary.log_marginal_likelihood]).to(device)

    check(scenario, device)


@devices
@pytest.mark.long("values on a pretend device are slow; maps, kernels and weight space are in make test")
def test_training_by_several_starts_and_priors(device):
    def scenario(device):
        x, y = regression(device, 60)
        exact = RBFKernel(ard_num_dims=2, lengthscale_prior=gpytorch.priors.GammaPrior(3.0, 6.0))
        kernel = approximated(device, ScaleKernel(exact) + gpytorch.kernels.LinearKernel(), width=30)
        model = models.WeightSpaceGP(kernel, GaussianLikelihood(), gpytorch.means.LinearMean(2)).double().to(device)
        summary = rfgp.fit(model, x, y, max_evaluations=40, progress=False)
        yield torch.tensor([summary.log_marginal_likelihood]).to(device)

    check(scenario, device)


@devices
def test_selection(device):
    def scenario(device):
        x = inputs(30, 3, device)
        kernel = gpytorch.kernels.PolynomialKernel(power=2).double().to(device)
        ranking = selection.rank_methods(kernel, 12, x, methods=["rademacher:real", "random_maclaurin:real"])
        yield torch.tensor([c.kl_per_point for c in ranking], dtype=DOUBLE).to(device)
        found = rfgp.approximate(kernel, 12, input_dim=3, seed=0)
        error, loss = selection.predicted_error(found, x), selection.posterior_loss(found, x)
        yield torch.tensor([error.relative_error, loss.coverage], dtype=DOUBLE).to(device)
        number = selection.suggest_num_features(kernel, x, 0.3, method="rademacher:real", progress=False)
        yield torch.tensor([float(number)]).to(device)

    check(scenario, device)


@devices
def test_diagnostics(device):
    def scenario(device):
        x, y = regression(device)
        model = models.WeightSpaceGP(approximated(device), GaussianLikelihood().double().to(device), keep_data=True)
        posterior = model.condition(x, y).posterior(x)
        noisy = model.likelihood(posterior)
        scores = [diagnostics.rmse(posterior.mean, y), diagnostics.regression_mnll(noisy, y)]
        exact = diagnostics.exact_posterior(model.covar_module, model.likelihood, x, y, x)
        yield from (exact.mean, exact.variance)
        scores += [diagnostics.kl_to_exact(model, x), diagnostics.kl_divergence(posterior, posterior)]
        scores.append(diagnostics.relative_frobenius_error(model.covar_module, x))
        yield torch.stack([torch.as_tensor(score, dtype=DOUBLE).to(device) for score in scores])

    check(scenario, device)
