"""The paths that users take, on small data: together they use every public class."""

from __future__ import annotations

import contextlib
import copy
import importlib
import inspect
import pickle
import pkgutil
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import dask.array
import gpytorch
import numpy as np
import pandas
import pyarrow as pa
import pyarrow.csv
import pyarrow.feather
import pyarrow.parquet
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from cases import map_examples
from gpytorch.kernels import (
    IndexKernel,
    MultitaskKernel,
    PiecewisePolynomialKernel,
    PolynomialKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import BernoulliLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from output_problems import (
    OUTPUT_KERNELS,
    ExactOutputModel,
    output_kernel,
    output_likelihood,
    output_mean,
    output_model,
    output_noise,
    output_rows,
)
from problems import COMPOSITIONS, KERNELS, ExactModel, composition

import rfgp
import rfgp.botorch
import rfgp.dask
import rfgp.sklearn
from rfgp import approximation, averaging, data, diagnostics, kernels, likelihoods, models, study
from rfgp import functionals as operators
from rfgp.approximation import selection
from rfgp.approximation.hooks.feature_operator import LazyFeatureCrossLinearOperator
from rfgp.averaging import AveragedGP, AveragedGPClassifier
from rfgp.diagnostics import bounds, certificates, conformal, sensitivity, two_sample
from rfgp.features import allocation
from rfgp.functionals import observations
from rfgp.models import streams
from rfgp.passes.executor import TreeSum
from rfgp.sklearn.frames.encoding import Encoding, InputColumn
from rfgp.study import datasets

WIDTH = 16
FILES = (*rfgp.__path__, *gpytorch.__path__, "<string>")  # the last one is that of generated methods


def rows(num_rows=40):
    x = torch.rand(num_rows, 2, generator=torch.Generator().manual_seed(1))
    return x, torch.sin(4.0 * x.sum(-1))


def approximated(exact=None, **options):
    exact = ScaleKernel(RBFKernel()) if exact is None else exact
    return rfgp.approximate(exact, WIDTH, input_dim=2, seed=0, **options)


def feature_maps():
    for case in map_examples():
        feature_map = case.values[0]()
        x = torch.nn.functional.normalize(torch.rand(3, feature_map.input_dim, dtype=torch.float64), dim=-1)
        assert feature_map(x).shape == (3, feature_map.num_features)
        feature_map.moments(x, x)


def families_of_kernels():
    for case in KERNELS.values():
        x = case.inputs(5)
        kernel = rfgp.approximate(case.make(), WIDTH, input_dim=case.columns, method=case.methods[0], seed=0)
        assert kernel(x).to_dense().shape == (5, 5)
    for name in COMPOSITIONS:
        x = torch.rand(5, 3, dtype=torch.float64)
        assert rfgp.approximate(composition(name), 48, input_dim=3, seed=0)(x).to_dense().shape == (5, 5)


class BlocksThenAll(rfgp.training.Strategy):
    def stages(self, training):
        assert isinstance(training, rfgp.training.Training)
        blocks = rfgp.training.CompositeLikelihood(training.observations, torch.arange(40).reshape(4, 10))
        yield rfgp.training.Stage(blocks, "blocks", evaluations=3)
        yield rfgp.training.Stage(training.objective, evaluations=2)


def regression():
    x, y = rows()
    model = models.WeightSpaceGP(approximated(), GaussianLikelihood())
    summary = rfgp.fit(model, x, y, max_evaluations=5, progress=False)
    assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
    for strategy in ("subset", "blocks"):
        narrow = rfgp.fit(model, x, y, strategy=strategy, max_evaluations=5, progress=False)
        assert isinstance(narrow.stages[0], rfgp.training.FitStage)
    with_stages = rfgp.fit(model, x, y, strategy=BlocksThenAll(), progress=False)
    assert [stage.rows for stage in with_stages.stages] == ["4 x 10 rows", "all rows"]
    assert model.condition(x, y).leave_one_out(x, y).log_prob.shape == model(x).mean.shape == (40,)
    assert model.update(*rows(5)).posterior(x).covariance_matrix.shape == (40, 40)
    exact = ExactModel(x, y, GaussianLikelihood(), approximated())
    assert rfgp.training.LeaveOneOutPseudoLikelihood(exact.likelihood, exact)(exact(x), y).shape == ()
    samples = model.sample_functions(2)
    assert isinstance(samples, models.FunctionSamples) and samples(x).shape == (2, 40) and len(samples) == 2
    assert model.sample_functions(2, prior=True)[0](x).shape == (40,)
    diagnostics.kl_to_exact(model, x, train_inputs=x, train_targets=y)


def what_is_left_out():
    x, y = rows()
    model = models.WeightSpaceGP(approximated(), GaussianLikelihood()).condition(x, y)
    left_out = model.leave_group_out(x, y, models.folds(40, 5))
    assert isinstance(left_out, rfgp.inference.LeaveGroupOut) and left_out.group_log_prob.shape == (5,)
    assert rfgp.fit(model, x, y, strategy="leave_one_out", max_evaluations=3, progress=False).evaluations
    assert isinstance(conformal.jackknife_plus(model, x, y, x[:3]), conformal.Interval)
    calibrated = conformal.split_conformal(model.condition(x[:20], y[:20]), x[20:], y[20:])
    assert isinstance(calibrated, conformal.SplitConformal) and calibrated.interval(x[:3]).upper.shape == (3,)
    sets = conformal.ClassConditionalSets(torch.full((40, 2), 0.5), torch.arange(40) % 2)
    assert bool(sets.sets(torch.full((3, 2), 0.5)).all())


def a_map():
    x, y = rows()
    model = models.WeightSpaceGP(approximated(), GaussianLikelihood(), num_draws=2).condition(x, y)
    summary = rfgp.predict_map(model, x, dtype=torch.float32, progress=False)
    assert summary.mean.shape == (40,) and max(summary.float32_error) < 1e-3 and summary.rows_per_second > 0.0
    assert models.PosteriorPoints(model)(x).variance.shape == (40, 1)


def functions_that_rise():
    x, y = rows()
    exact = kernels.ObservationKernel(RBFKernel(), input_dim=x.shape[-1])
    model = models.WeightSpaceGP(rfgp.approximate(exact, 32, seed=0), GaussianLikelihood())
    model.condition(observations.points(x), y)
    rising = observations.derivatives(x, torch.eye(x.shape[-1])[0])
    assert model.posterior(rising).mean.min() < 0.0 < models.given_positive(model, rising).posterior(rising).mean.min()


def uncertain_inputs():
    x, y = rows()
    model = models.WeightSpaceGP(approximated(), GaussianLikelihood()).condition(x, y)
    inputs = {"length": sensitivity.Uniform(0.0, 1.0), "load": sensitivity.Normal(0.5, 0.1)}
    indices = sensitivity.sobol_indices(model, inputs, num_functions=3)
    assert isinstance(indices.total, sensitivity.Estimate) and "load" in indices.table()
    assert sensitivity.main_effects(model, inputs, 5, num_functions=3).effect.std.shape == (5, 2)
    slopes = sensitivity.derivative_sensitivities(model, inputs, num_functions=3)
    assert isinstance(slopes, sensitivity.DerivativeSensitivities) and (slopes.total_bound().value > 0.0).all()
    known = sensitivity.propagate(model, inputs, num_points=50, num_functions=3)
    assert isinstance(known, sensitivity.Propagation) and known.std > 0.0
    dependent = sensitivity.GaussianCopula(inputs, [[1.0, 0.5], [0.5, 1.0]])
    shares = sensitivity.shapley_effects(model, dependent, num_functions=3, num_points=32)
    assert isinstance(shares, sensitivity.ShapleyEffects) and "load" in shares.table()
    assert sensitivity.propagate(model, dependent, num_points=50, num_functions=3).std > 0.0
    values = sensitivity.Empirical(x[:, 1])
    other = models.WeightSpaceGP(approximated(PolynomialKernel(power=2)), GaussianLikelihood()).condition(x, y)
    found = sensitivity.sobol_indices(other, [values, values], num_functions=2, num_points=16)
    assert isinstance(found, sensitivity.SobolIndices) and found.method == "sampling"


def exact_regression():
    x, y = rows()
    model = ExactModel(x, y, GaussianLikelihood(), approximated())
    rfgp.fit(model, max_evaluations=5, progress=False)
    assert model.eval().likelihood(model(x[:5])).variance.shape == (5,)
    assert models.sample_functions(model, 2)(x).shape == (2, 40)


def landmarks():
    x, y = rows()
    kernel = rfgp.approximate(PiecewisePolynomialKernel(), 8, method="landmarks_kmeans", train_inputs=x)
    assert models.WeightSpaceGP(kernel, GaussianLikelihood()).condition(x, y).posterior(x).mean.shape == (40,)
    learned = approximation.LandmarkKernel(RBFKernel(), x[:8], learn=True)
    assert models.WeightSpaceGP(learned, GaussianLikelihood()).condition(x, y).posterior(x).variance.shape == (40,)


def local_blocks():
    x, y = rows()
    kernel = rfgp.approximate(RBFKernel(), 8, method="landmarks", train_inputs=x)
    for neighbors in (None, 5):
        model = models.WeightSpaceGP(kernel, GaussianLikelihood(), block_size=10, num_neighbors=neighbors).condition(
            x, y
        )
        assert model.posterior(x).covariance_matrix.shape == (40, 40)
    assert model.sample_functions(3)(x).shape == (3, 40)
    residual = models.WeightSpaceGP(kernel, GaussianLikelihood(), residual="fitc")
    assert residual.condition(x, y).posterior(x).mean.shape == (40,)


def streams_of_rows():
    x, y = rows()
    model = models.WeightSpaceGP(approximated(), GaussianLikelihood()).condition(x, y)
    other = copy.deepcopy(model).condition(x[:5], y[:5])
    error = model.merge(other).downdate(x[:5], y[:5]).refit_error(x, y)
    assert error.largest < 1e-4
    assert model.forget(0.5).statistics.num_rows == 20.0
    window = streams.SlidingWindow(models.WeightSpaceGP(approximated(), GaussianLikelihood()), size=20)
    bank = streams.LengthscaleBank(window, learn_every=20)
    fading = streams.Forgetting(models.WeightSpaceGP(approximated(), GaussianLikelihood()), 0.9)
    for start in range(0, 40, 10):
        for stream in (window, bank, fading):
            stream.update(x[start : start + 10], y[start : start + 10])
    assert bank.posterior(x[:5]).variance.shape == (5,) and window.drift.exchanges == 1


def a_mixture_of_draws():
    x, y = rows()
    model = models.WeightSpaceGP(approximated(), GaussianLikelihood(), num_draws=3)
    rfgp.fit(model, x, y, max_evaluations=3, progress=False)
    posterior = model.update(x, y).posterior(x[:5])
    assert posterior.variance.shape == posterior.rsample().shape == (5,)
    assert model.sample_functions(2)(x).shape == (2, 40)
    again = models.WeightSpaceGP(approximated(), GaussianLikelihood(), num_draws=3)
    again.load_state_dict(model.state_dict())
    assert torch.equal(again.posterior(x[:5]).mean, posterior.mean)


def a_file_of_a_model():
    x, y = rows()
    model = models.WeightSpaceGP(approximated(), GaussianLikelihood()).condition(x, y)
    with tempfile.TemporaryDirectory() as folder:
        rfgp.save(model, f"{folder}/model.pt")
        assert torch.equal(rfgp.load(f"{folder}/model.pt").posterior(x).mean, model.posterior(x).mean)


def classification():
    x, y = rows()
    likelihood = likelihoods.DirichletClassificationLikelihood(num_classes=2)
    model = models.WeightSpaceGP(approximated(PolynomialKernel(power=2)), likelihood).condition(x, (y > 0.0).long())
    assert likelihood.class_probabilities(model.posterior(x)).shape == (40, 2)


def other_likelihoods():
    x, y = rows()
    counts = likelihoods.PoissonLikelihood(), likelihoods.NegativeBinomialLikelihood()
    for likelihood, targets in (
        (gpytorch.likelihoods.BernoulliLikelihood(), y > 0.0),
        *((likelihood, (3.0 * y.abs()).round()) for likelihood in counts),
    ):
        model = models.LaplaceGP(approximated(), likelihood)
        summary = rfgp.fit(model, x, targets, max_evaluations=3, progress=False)
        assert summary.log_marginal_likelihood > summary.initial_log_marginal_likelihood
        assert likelihood(model.posterior(x)).mean.shape[-1] == 40
    years = torch.linspace(0.1, 10.0, 40)
    rates = models.LaplaceGP(approximated(), counts[0])
    rfgp.fit(rates, x, (3.0 * years).round(), exposure=years, max_evaluations=3, progress=False)
    assert counts[0](rates.posterior(x), exposure=years).mean.shape == (40,)
    classes = models.LaplaceGP(approximated(), gpytorch.likelihoods.SoftmaxLikelihood(2, 2)).condition(
        x, (y > 0.0).long()
    )
    assert classes.likelihood(classes(x)).probs.shape[-2:] == (40, 2)


def labels_that_are_wrong_in_some_places():
    x, y = rows()
    likelihood = likelihoods.HeteroscedasticSoftmaxLikelihood(num_classes=2)
    assert isinstance(likelihood, likelihoods.SeveralFunctionsLikelihood)
    model = models.LaplaceGP(approximated(), likelihood)
    rfgp.fit(model, x, (y > 0.0).long(), max_evaluations=3, progress=False)
    assert likelihood.label_noise(model.posterior(x)).shape == (40,)
    assert likelihood(model(x)).probs.shape[-2:] == (40, 2)


def any_likelihood():
    x, y = rows()
    model = models.WeightSpaceVariationalGP(approximated(), BernoulliLikelihood())
    summary = rfgp.fit(model, x, (y > 0.0).double(), strategy=rfgp.training.Minibatches(epochs=2, initialize=False))
    assert len(summary.trace) == 2 and model.likelihood(model.posterior(x)).probs.shape == (40,)


def noise_that_depends_on_the_inputs():
    x, y = rows()
    model = models.HeteroscedasticGP(approximated(), approximated()).condition(x, y)
    assert isinstance(model.log_noise.likelihood, likelihoods.LogVarianceLikelihood)
    assert model.log_prob(x, y).shape == model.predictive(x).variance.shape == (40,)
    assert rfgp.fit(model, x, y, max_evaluations=3, progress=False).log_marginal_likelihood == model.bound


def complex_regression():
    x, y = rows()
    model = models.WeightSpaceGP(approximated(method="fourier:complex"), likelihoods.ComplexGaussianLikelihood())
    assert model.condition(x, torch.complex(y, x[:, 0])).posterior(x).mean.is_complex()
    improper = approximated(MultitaskKernel(RBFKernel(), num_tasks=2, rank=2))
    model = models.WeightSpaceGP(improper, likelihoods.ComplexGaussianLikelihood(has_pseudo_noise=True))
    rfgp.fit(model, x, torch.complex(y, x[:, 0]), max_evaluations=3, progress=False)
    noisy = model.likelihood(model.posterior(x))
    assert noisy.pseudo_variance.shape == (40,) and noisy.entropy().shape == ()
    assert noisy.in_region(noisy.mean, 0.9).all()
    known = likelihoods.FixedNoiseComplexGaussianLikelihood(torch.ones(40))
    model = models.WeightSpaceGP(approximated(), known).condition(x, torch.complex(y, x[:, 0]))
    assert known(model.posterior(x)).variance.shape == (40,)


def several_outputs():
    for name in OUTPUT_KERNELS:
        x, y = output_rows(name)
        assert output_model(name).condition(x, y).posterior(x).mean.shape == y.shape
        likelihood = output_likelihood(name, "one")
        model = ExactOutputModel(x, y, likelihood, output_kernel(name), output_mean(name)).eval()
        assert likelihood(model(x[:3])).mean.shape == y[:3].shape
    x, y = output_rows("multitask", pattern="random")
    noise = output_noise("multitask")
    exact = MultitaskKernel(RBFKernel(), num_tasks=3)
    kernel = approximated(exact, method="optimized_maclaurin", train_inputs=x)
    model = models.WeightSpaceGP(kernel, output_likelihood("multitask", "fixed"))
    assert model.condition(x, y, noise).posterior(x).sample().shape == y.shape
    constant = kernels.DecomposableKernel(RBFKernel(), kernels.ConstantCovariance(torch.eye(3)))
    assert approximated(constant)(x).shape == (60, 60)
    tasks = approximated(RBFKernel(active_dims=[0]) * IndexKernel(num_tasks=2, active_dims=[1]))
    assert tasks(torch.tensor([[0.5, 0.0], [0.5, 1.0]])).shape == (2, 2)
    squares = models.VectorLeastSquares(approximated(kernels.HelmholtzKernel(RBFKernel())), regularization=1e-3)
    assert squares.fit(*output_rows("curl-free")).predict(x).shape == (20, 2)


def functionals_of_a_field():
    x, y = output_rows("one measure")
    model = models.WeightSpaceGP(approximated(OUTPUT_KERNELS["one measure"][0]()), MultitaskGaussianLikelihood(2))
    model.condition(x, y)
    parts = operators.CurlFreePart(), operators.DivergenceFreePart()
    scalars = operators.Potential(), operators.Streamfunction(), operators.Divergence(), operators.Vorticity()
    for operator in (*parts, *scalars, operators.Component(0), operators.Stacked(*scalars[:2])):
        assert torch.isfinite(model.posterior(x, operator).variance).all()
    space = rfgp.approximate(kernels.CurlFreeKernel(RBFKernel()), WIDTH, input_dim=3, seed=0)
    model = models.WeightSpaceGP(space, MultitaskGaussianLikelihood(3)).condition(torch.rand(9, 3), torch.rand(9, 3))
    assert model.posterior(torch.rand(4, 3), operators.Curl()).mean.shape == (4, 3)
    for operator in (operators.Gradient(), operators.RotatedGradient(), operators.Laplacian(), operators.Partial(0)):
        assert len(operator.symbol(x, 1)) == len(x)


def observations_that_are_integrals():
    x, y = rows()
    seen = torch.cat([observations.points(x[:20]), observations.segments(x[20:], x[:20])])
    exact = kernels.ObservationKernel(RBFKernel(), input_dim=2)
    model = models.WeightSpaceGP(approximated(exact), GaussianLikelihood()).condition(seen, y)
    parts = observations.split(observations.boxes(x, x + 0.1, integral=True), 2)
    assert isinstance(parts, observations.ObservationRows) and parts.weights.shape == (
        40,
        observations.num_columns(2) - 6,
    )
    assert isinstance(model.covar_module, approximation.FeatureKernel)
    assert model.posterior(observations.derivatives(x, x)).variance.shape == (40,)
    assert exact(seen[:3]).to_dense().shape == (3, 3)


def a_density_of_ones_own():
    def density(w):
        return torch.exp(-0.5 * w.square().sum(-1))[:, None, None] * torch.eye(2)

    kernel = kernels.SpectralDensityKernel(density, input_dim=2)
    assert approximated(kernel)(torch.zeros(3, 2)).shape == (6, 6)


def transformed_inputs():
    x, _ = rows()
    learned = (kernels.LinearMap(x), kernels.KumaraswamyWarp(x), kernels.SinhArcsinhWarp(x))
    for transform in (*learned, kernels.SphericalCoordinates(latitude=1, longitude=0)):
        made = kernels.InputTransformKernel(RBFKernel(), transform)
        rfgp.approximate(made, WIDTH, train_inputs=x, seed=0).features(x)
    assert kernels.OrthogonalAdditiveKernel(x.shape[-1])(x).shape == (len(x), len(x))


def a_local_model():
    x, y = rows()
    model = models.LocalizedMaclaurinGP(ScaleKernel(RBFKernel()), GaussianLikelihood(), num_features=10)
    assert model.condition(x, y).posterior(x).variance.shape == (40,)


def few_rows():
    x, y = rows()
    model = AveragedGP(x.double(), y.double())
    assert isinstance(model.predictive(x.double()), averaging.Mixture)
    assert len(model.single_draws(4)) == 4 and len(model.thinned(4).without(torch.arange(5)).y) == len(y) - 5
    own = ExactModel(x.double(), y.double(), GaussianLikelihood(), RBFKernel()).double()
    average = rfgp.fit(own, strategy=rfgp.training.Average(), progress=False).average
    found = average.predictive(x.double())
    assert isinstance(average, models.ParameterAverage) and isinstance(found, models.NormalMixture)
    assert bool((found.icdf(0.1) < found.mean).all())
    classifier = AveragedGPClassifier(x.double(), (y > y.mean()).long())
    assert classifier.predictive(x.double()).probs.shape == (len(x), 2)


def choices():
    x, _ = rows()
    assert selection.predicted_error(approximated(), x).relative_error > 0.0
    ranking = selection.rank_methods(
        PolynomialKernel(power=2), WIDTH, x, methods=["rademacher:real", "tensor_srht:real"]
    )
    assert ranking == sorted(ranking, key=lambda candidate: candidate.kl_per_point)
    assert 0.0 <= selection.posterior_loss(approximated(), x).coverage <= 1.0
    terms = allocation.allocate(x, WIDTH, torch.tensor([1.0, 1.0, 0.5]), function=torch.exp)
    assert sum(terms.num_columns.values()) == WIDTH
    assert bounds.rademacher_bound(x[:1], x[1:2], degree=2).num_features(epsilon=0.1, delta=0.05) > 1


def studies():
    x, y = (values.double() for values in rows())
    data = datasets.Dataset(
        name="toy",
        x_train=x[:30],
        y_train=y[:30],
        x_test=x[30:],
        y_test=y[30:],
        task="regression",
        num_classes=None,
        provenance="here",
        licence="none",
    )
    result = study.run(
        data, kernel="polynomial:2", methods=["rademacher:real"], num_features=[8], num_seeds=1, progress=False
    )
    assert "rademacher" in result.table() and result.runs and result.summaries
    assert study.KernelScore.from_dict({"kernel": "rbf", "nlpd": 0.5, "behind": 0.0, "behind_error": 0.0}).nlpd == 0.5
    assert result.verdict().choice in ("exact", "approximate", "linear", "trivial")
    assert not study.compare(result, result).settings
    result.figure()
    x = np.random.default_rng(0).random((12, 1))
    found = study.uncertainty(x, x[:, 0] ** 2)
    assert isinstance(found, study.UncertaintyStudy) and "trusted" in str(found)
    assert len(datasets.load_wind().window((20, 65), (-90, 10), "mercator").shape) == 2


def a_table():
    x, y = (values.numpy() for values in rows())
    estimators = rfgp.sklearn.RandomFeatureGPRegressor, rfgp.sklearn.RandomFeatureGPClassifier
    for estimator, targets in zip(estimators, (y, y > 0.0), strict=True):
        model = estimator(num_features=WIDTH, max_evaluations=5, random_state=0).fit(x, targets)
        assert model.predict(x).shape == (40,)
    counts = rfgp.sklearn.RandomFeatureGPCountRegressor("rbf", max_evaluations=5, random_state=0)
    assert counts.fit(x, (y > 0.0) + 1.0, exposure=x[:, 0] ** 2 + 1.0).predict_interval(x).shape == (40, 2)
    assert rfgp.sklearn.TableEncoder().fit_transform(pandas.DataFrame({"kind": ["a", "b"]})).shape == (2, 1)
    assert rfgp.sklearn.RandomFeatures(num_features=WIDTH, random_state=0).fit_transform(x).shape == (40, WIDTH)


def a_model_of_a_file():
    x, y = rows()
    frame = pandas.DataFrame({"east": x[:, 0], "kind": ["a", "b"] * 20, "height": y})
    with tempfile.TemporaryDirectory() as folder:
        frame.to_csv(f"{folder}/table.csv", index=False)
        table = rfgp.study.tables.read(f"{folder}/table.csv", "height")
        assert isinstance(table, rfgp.study.tables.Table) and isinstance(table.columns[0], rfgp.study.tables.Column)
        assert isinstance(table.encoding.columns[0], InputColumn)
        assert Encoding.from_json(table.encoding.to_json()) == table.encoding
        model = rfgp.study.tables.TableModel.fit(table, num_features=WIDTH)
        assert isinstance(model.scores, rfgp.study.tables.Scores) and "RMSE" in model.report()
        model.save(f"{folder}/model.pt")
        assert rfgp.study.tables.TableModel.load(f"{folder}/model.pt").predict(frame).shape == (40, 5)
        archive = f"{folder}/table.npz"
        np.savez(archive, x=x, y=y)
        assert datasets.read_archive(archive, "y").x_train.shape == (32, 2)


def big_tables():
    x, y = rows()
    with tempfile.TemporaryDirectory() as folder:
        table = pa.table({"a": x[:, 0].numpy(), "b": x[:, 1].numpy(), "y": y.numpy()})
        pa.parquet.write_table(table, f"{folder}/table.parquet")
        pa.feather.write_feather(table, f"{folder}/table.arrow")
        pa.csv.write_csv(table, f"{folder}/table.csv")
        np.save(f"{folder}/x.npy", x.numpy())
        arrays = data.ArraySource(np.load(f"{folder}/x.npy", mmap_mode="r"), y, batch_size=10)
        arrays = pickle.loads(pickle.dumps(arrays.partitions(1)[0]))
        kinds = data.ParquetSource, data.ArrowSource, data.CsvSource
        for source in (arrays, *(kind(folder, ["a", "b"], "y", batch_size=10) for kind in kinds)):
            known = data.sample(source, 10, seed=0)
            assert isinstance(known, data.Sample) and isinstance(known.inputs, data.ColumnMoments)
            scaled = data.MappedSource(source, data.Standardize(known.inputs.mean, known.inputs.std))
            assert isinstance(scaled, data.Source)
            file = f"{folder}/{type(source).__name__}.checkpoint"
            model = models.WeightSpaceGP(approximated(), GaussianLikelihood())
            model.condition(scaled, progress=False, checkpoint=file, checkpoint_every=20)
            (inputs,) = next(iter(data.GridSource([torch.zeros(2), torch.linspace(0.0, 1.0, 3)])))
            assert model.posterior(inputs).mean.shape == (6,)


def many_classes():
    x, _ = rows()
    labels = torch.arange(40)
    likelihood = likelihoods.DirichletClassificationLikelihood(num_classes=40, dtype=torch.float64)
    model = models.WeightSpaceGP(approximated(), likelihood).condition(x, labels)
    assert isinstance(model.statistics, rfgp.inference.ClassStatistics)
    assert isinstance(model.weight_posterior(), rfgp.inference.ClassPosterior)


def sums_by_workers():
    x, y = rows()
    total = TreeSum(float.__add__)
    with ThreadPoolExecutor(2) as executor:
        for part in zip(x.split(10), y.split(10), strict=True):
            total.add(models.WeightSpaceGP(approximated(), GaussianLikelihood()).condition(*part).statistics.num_rows)
        fitted = models.WeightSpaceGP(approximated(), GaussianLikelihood()).condition(x, y, executor=executor)
    assert fitted.statistics.num_rows == total.value() == 40
    arrays = dask.array.from_array(x.numpy(), chunks=(10, 2)), dask.array.from_array(y.numpy(), chunks=10)
    assert rfgp.dask.condition(fitted, *arrays).statistics.num_rows == 40


def rows_of_a_rank():
    x, y = rows()
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        shard = rfgp.passes.Shard([(x, y)])
        assert shard.sample(5, seed=0).x.shape == (5, 2)
        model = rfgp.passes.broadcast(models.WeightSpaceGP(approximated(), GaussianLikelihood()))
        assert model.condition(shard).statistics.num_rows == 40
    finally:
        torch.distributed.destroy_process_group()


def functions_by_botorch():
    from botorch.models import SingleTaskGP
    from botorch.sampling.pathwise import draw_matheron_paths

    x, y = rows()
    model = SingleTaskGP(x, y.unsqueeze(-1), covar_module=approximated())
    assert draw_matheron_paths(model, torch.Size([3]))(x).shape == (3, 40)
    cross = model.covar_module(x, x[:2]).evaluate_kernel()
    assert isinstance(cross, LazyFeatureCrossLinearOperator) and cross.to_dense().shape == (
        40,
        2,
    )


def bayesian_optimization():
    from botorch.sampling.pathwise import draw_matheron_paths

    x, y = rows()
    model = rfgp.botorch.WeightSpaceModel(x, y.unsqueeze(-1), num_features=WIDTH, seed=0)
    mll = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(mll, optimizer_kwargs={"max_evaluations": 5})
    assert model.condition_on_observations(x[:2], y[:2].unsqueeze(-1)).posterior(x[:3]).mean.shape == (3, 1)
    assert isinstance(draw_matheron_paths(model, torch.Size([4])), rfgp.botorch.FunctionPath)
    samples = model.sample_functions(4)
    assert isinstance(samples, rfgp.botorch.ModelSamples) and samples(x[:3]).shape == (4, 3, 1)


def scores_of_error_bars():
    """Calibration, recalibration, and the report of how far from exact a model is."""
    x, y = rows()
    model = models.WeightSpaceGP(rfgp.approximate(RBFKernel(), 8, input_dim=2, seed=0), GaussianLikelihood())
    predictive = model.likelihood(model.condition(x, y).posterior(x))
    curve = diagnostics.calibration_curve(predictive, y)
    assert curve.predicted.shape == curve.observed.shape
    assert diagnostics.recalibrate_variance(predictive, y)(predictive).mean.shape == y.shape
    probabilities = torch.full((4, 2), 0.5)
    assert diagnostics.recalibrate_temperature(probabilities, torch.tensor([0, 1, 1, 0]))(probabilities).sum() == 4.0
    assert "exact posterior" in str(diagnostics.compare_to_exact(model, x, train_inputs=x, train_targets=y))


def two_samples():
    """Discrepancies of two samples, from features and from kernel values."""
    x, y = torch.randn(20, 2), torch.randn(20, 2)
    for kernel in (RBFKernel(), rfgp.approximate(RBFKernel(), 8, input_dim=2, seed=0)):
        assert two_sample.mmd(x, y, kernel).null_standard_error > 0
        assert two_sample.permutation_test(x, y, kernel, num_permutations=3).p_value >= 0.25


def certified_means():
    x, y = (values.double() for values in rows())
    kernel, likelihood = approximated(ScaleKernel(RBFKernel()).double()), GaussianLikelihood().double()
    found = certificates.certify(
        models.WeightSpaceGP(kernel, likelihood).condition(x, y), x, y, x[:3], num_landmarks=10
    )
    assert bool((found.largest_error >= found.smallest_error).all())
    assert isinstance(found, certificates.Certificate) and isinstance(found.posterior, certificates.CertifiedPosterior)
    assert isinstance(found.posterior.variance_bounds(x[:3]), certificates.Bounds)
    assert isinstance(
        certificates.log_determinant(kernel, likelihood, x, num_landmarks=10), certificates.StochasticEstimate
    )


PATHS = (
    feature_maps,
    families_of_kernels,
    transformed_inputs,
    regression,
    what_is_left_out,
    a_map,
    uncertain_inputs,
    certified_means,
    exact_regression,
    landmarks,
    local_blocks,
    streams_of_rows,
    a_mixture_of_draws,
    a_file_of_a_model,
    classification,
    other_likelihoods,
    labels_that_are_wrong_in_some_places,
    any_likelihood,
    noise_that_depends_on_the_inputs,
    complex_regression,
    several_outputs,
    functionals_of_a_field,
    observations_that_are_integrals,
    a_density_of_ones_own,
    a_local_model,
    few_rows,
    choices,
    a_table,
    a_model_of_a_file,
    big_tables,
    many_classes,
    sums_by_workers,
    rows_of_a_rank,
    functions_by_botorch,
    bayesian_optimization,
    studies,
    two_samples,
    scores_of_error_bars,
)


@contextlib.contextmanager
def classes_in_use():
    """The set of classes, with their bases, whose methods are called inside the context."""
    used, codes = set(), {}

    def note(frame, event, _):
        if event != "call":  # but of functions in C and of ends, of which there are more
            return
        code = frame.f_code
        has_owner = codes.get(code)
        if has_owner is None:
            has_owner = code.co_filename.startswith(FILES) and code.co_varnames[:1] in (("self",), ("_cls",))
            codes[code] = has_owner
        if has_owner:
            owner = frame.f_locals[code.co_varnames[0]]
            kind = owner if isinstance(owner, type) else type(owner)
            if kind not in used:
                used.update(kind.__mro__)

    sys.setprofile(note)
    try:
        yield used
    finally:
        sys.setprofile(None)


def public_classes():
    for module in pkgutil.iter_modules(rfgp.__path__, "rfgp."):
        for value in vars(importlib.import_module(module.name)).values():
            is_private = module.name.split(".")[-1].startswith("_")
            is_class = inspect.isclass(value) and not getattr(value, "_is_protocol", False)
            if is_class and value.__module__.startswith("rfgp.") and not is_private:
                yield value


@pytest.mark.smoke
@pytest.mark.usefixtures("float64_default")
@pytest.mark.filterwarnings("ignore")
def test_the_paths_use_every_public_class(small_defaults):
    with classes_in_use() as used:
        for path in PATHS:
            path()
    assert {cls.__qualname__ for cls in set(public_classes()) - used} == set()
