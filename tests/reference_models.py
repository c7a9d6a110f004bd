"""What models compute, for ``tests/reference.py``: functions that yield names and tensors.

:data:`CONTRACT` walks the registry of ``tests/support/contract.py``; :data:`OTHERS` are models that it does not have.
"""

import contextlib
import copy
import functools
import itertools
import pickle
import tempfile
import warnings
from concurrent.futures import ThreadPoolExecutor

import gpytorch
import numpy as np
import torch
from contract import LIKELIHOODS, MODELS, ROWS
from gpytorch.kernels import (
    CosineKernel,
    IndexKernel,
    LCMKernel,
    MaternKernel,
    MultitaskKernel,
    PeriodicKernel,
    PolynomialKernel,
    RBFKernel,
    RQKernel,
    ScaleKernel,
    SpectralMixtureKernel,
)
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    BetaLikelihood,
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    MultitaskGaussianLikelihood,
    SoftmaxLikelihood,
    StudentTLikelihood,
)
from gpytorch.means import ConstantMean, LinearMean, MultitaskMean
from output_problems import OUTPUT_KERNELS, ExactOutputModel, output_kernel, output_likelihood, output_mean, output_rows
from problems import COMPOSITIONS, KERNELS, ExactModel
from saved_models import MODELS as SAVED
from saved_models import WITH_ROWS, predictions, through_a_file

import rfgp
import rfgp.botorch
import rfgp.sklearn
from rfgp import data, kernels, likelihoods, models, training
from rfgp.models import streams
from rfgp.models.least_squares import simplex

POINTS = 7


def rows(num_rows=60, columns=2, seed=1):
    """Inputs in a box, a rough function with noise, and points."""
    generator = torch.Generator().manual_seed(seed)
    x = 2.0 * torch.rand(num_rows, columns, generator=generator, dtype=torch.float64)
    y = torch.sin(4.0 * x.sum(-1)) + 0.2 * torch.randn(num_rows, generator=generator, dtype=torch.float64)
    return x, y, 2.0 * torch.rand(POINTS, columns, generator=generator, dtype=torch.float64)


def exact(base=None, lengthscale=0.6):
    kernel = MaternKernel(nu=1.5) if base is None else base
    if kernel.has_lengthscale:
        kernel.lengthscale = lengthscale
    kernel = ScaleKernel(kernel)
    kernel.outputscale = 1.4
    return kernel


def features(x, method="landmarks", width=12, base=None):
    return rfgp.approximate(exact(base), width, method=method, train_inputs=x, seed=0)


def gaussian(noise=0.05):
    likelihood = GaussianLikelihood()
    likelihood.noise = noise
    return likelihood


def weighted(matrix):
    return matrix @ torch.linspace(0.5, 1.5, matrix.shape[-1]).to(matrix)


def gradients(value, model):
    """A value and its gradients in all parameters of a model."""
    exact = getattr(getattr(model, "covar_module", None), "exact_kernel", torch.nn.Module())
    of_kernel = {id(p): f"kernel.{name}" for name, p in exact.named_parameters()}  # whatever is around the kernel
    named = {of_kernel.get(id(p), name): p for name, p in model.named_parameters() if p.requires_grad}
    slopes = torch.autograd.grad(value, list(named.values()), allow_unused=True)
    yield "evidence", value.detach()
    for name, slope in zip(named, slopes, strict=True):
        yield f"gradient in {name}", torch.zeros(0) if slope is None else slope


@torch.no_grad()
def moments(distribution, name="posterior"):
    yield f"{name}, mean", distribution.mean
    yield f"{name}, variance", distribution.variance
    yield f"{name}, covariance", weighted(distribution.covariance_matrix)


@torch.no_grad()
def drawn(model, xs, name="draws/sample", **options):
    torch.manual_seed(9)
    yield name, model.sample_functions(2, **options)(xs)


def left_out(found, name):
    """What is left out; values of NamedTuples."""
    for part, value in found._asdict().items():
        yield f"{name}, {part}", value


# The registry


def contract(case):
    """Every verb of a model of the registry."""
    x, y, given = case.rows()
    _, xs = case.inputs()
    model = case.fitted()
    yield from gradients(model.log_marginal_likelihood(), model)
    yield from moments(model.posterior(xs))
    yield (
        "noisy variance",
        model.likelihood(model.posterior(xs)).variance if not case.noise_case.is_known else torch.zeros(0),
    )
    yield from drawn(model, xs)
    yield from drawn(model, xs, "prior draws/sample", prior=True)
    yield from left_out(model.leave_one_out(x, y, **given), "leave one out")
    yield from left_out(model.leave_group_out(x, y, torch.arange(ROWS) // 5, **given), "leave group out")
    if case.settings == "plain" and not case.noise_case.has_labels:
        weights = {name: value for name, value in given.items() if name == "noise"}
        if "weights" not in given:
            yield "leave out functions", model.leave_out_functions(x, y, torch.arange(ROWS) // 5, **weights)(xs)
    with torch.no_grad():
        points = model.point_predictor()(xs)
    yield "points, mean", points.mean
    yield "points, variance", points.variance
    half = [{name: value[part] for name, value in given.items()} for part in (slice(12), slice(12, None))]
    with torch.no_grad():
        parts = case.unfitted().condition(x[:12], y[:12], **half[0]).update(x[12:], y[12:], **half[1])
        yield from moments(parts.posterior(xs), "update")
        yield "update, evidence", parts.log_marginal_likelihood()
        yield from moments(parts.downdate(x[:12], y[:12], **half[0]).posterior(xs), "downdate")
        yield from moments(parts.forget(0.5).posterior(xs), "forget")
        yield "forget, evidence", parts.log_marginal_likelihood()
        single = case.unfitted().condition(x[:12], y[:12], **half[0])
        other = case.unfitted().condition(x[12:], y[12:], **half[1])
        yield "merge, mean", single.merge(other).posterior(xs).mean
        again = case.unfitted()
        again.load_state_dict(model.state_dict())
        yield from moments(again.posterior(xs), "state")


CONTRACT = {f"contract/{case}": functools.partial(contract, case) for case in MODELS}


# Models that the registry does not have


def neighbors():
    """Blocks with neighbors: predictions of every likelihood, with left-out rows and draws."""
    for case in MODELS:
        if case.settings == "blocks":
            x, y, given = case.rows()
            _, xs = case.inputs()
            model = case.unfitted()
            model.num_neighbors = 5
            model.condition(x, y, **given)
            yield from ((f"{case}: {name}", value) for name, value in moments(model.posterior(xs)))
            yield from ((f"{case}: {name}", value) for name, value in drawn(model, xs))
            found = left_out(model.leave_one_out(x, y, **given), "leave one out")
            yield from ((f"{case}: {name}", value) for name, value in found)
            points = model.point_predictor()(xs)
            yield from ((f"{case}: points, {name}", getattr(points, name)) for name in ("mean", "variance"))


def student_t():
    likelihood = StudentTLikelihood()
    likelihood.initialize(deg_free=4.0, noise=0.1)
    return likelihood


LATENT = {
    "probit": (BernoulliLikelihood, lambda y: (y > 0).double()),
    "counts": (likelihoods.PoissonLikelihood, lambda y: (3.0 * y.abs()).round()),
    "overdispersed counts": (likelihoods.NegativeBinomialLikelihood, lambda y: (3.0 * y.abs()).round()),
    "beta": (BetaLikelihood, torch.sigmoid),
    "student": (student_t, lambda y: y + 4.0 * (torch.arange(len(y)) % 9 == 0)),
    "normal": (gaussian, lambda y: y),
    "softmax": (lambda: SoftmaxLikelihood(num_classes=3, mixing_weights=False), lambda y: three(y)),
    "softmax, mixed": (lambda: mixed_softmax(), lambda y: three(y)),
}


def three(y):
    return torch.bucketize(y, torch.tensor([-0.5, 0.5]).to(y))


def mixed_softmax():
    likelihood = SoftmaxLikelihood(num_features=2, num_classes=3)
    likelihood.mixing_weights.data = torch.tensor([[1.0, 0.2], [-0.5, 0.8], [0.1, -1.0]])
    return likelihood


def laplace():
    """LaplaceGP of every likelihood: features alone, blocks, and blocks with neighbors."""
    x, y, xs = rows()
    ways = {"sketch": ("tensor_srht", {}), "landmarks": ("landmarks", {}), "complex": ("fourier:complex", {})}
    ways |= {"blocks": ("landmarks", {"block_size": 16, "num_neighbors": None})}
    ways |= {"neighbors": ("landmarks", {"block_size": 16, "num_neighbors": 6})}
    ways |= {"block diagonal": ("landmarks", {"hessian": "block_diagonal"})}
    for (kind, (make, targets)), (way, (method, options)) in itertools.product(LATENT.items(), ways.items()):
        if ("hessian" in options and not kind.startswith("softmax")) or ("block_size" in options and "mixed" in kind):
            continue
        base = PolynomialKernel(power=2) if method == "tensor_srht" else None
        model = models.LaplaceGP(features(x, method, base=base), make(), ConstantMean(), **options)
        found = itertools.chain(
            gradients(model.condition(x, targets(y)).log_marginal_likelihood(), model), moments(model.posterior(xs))
        )
        yield from ((f"{kind}, {way}: {name}", value) for name, value in found)
        if "block_size" in options:
            model.condition(x[:50], targets(y)[:50]).update(x[50:], targets(y)[50:])
            yield f"{kind}, {way}: update", model.posterior(xs).mean
    table = torch.stack([y > 0, y > 0.5], dim=-1).double()
    table[::7, 0] = torch.nan
    for options in ({}, {"block_size": 16}, {"block_size": 16, "num_neighbors": None}):
        kernel = rfgp.approximate(
            MultitaskKernel(RBFKernel(), 2, rank=1), 8, method="landmarks", train_inputs=x, seed=0
        )
        model = models.LaplaceGP(kernel, BernoulliLikelihood(), **options)
        found = itertools.chain(
            gradients(model.condition(x, table).log_marginal_likelihood(), model), moments(model.posterior(xs))
        )
        yield from ((f"tasks, {options}: {name}", value) for name, value in found)
    batches = [(x[:30], (y[:30] > 0).double()), (x[30:], (y[30:] > 0).double())]
    model = models.LaplaceGP(features(x, "fourier"), BernoulliLikelihood()).condition(batches)
    yield "batches", model.posterior(xs).mean
    yield "started", model.condition(x, (y > 0).double(), start=model.mode).mode


def variational():
    x, y, xs = rows()
    shapes = ("full", "diagonal")
    for (kind, (make, targets)), shape in itertools.product(LATENT.items(), shapes):
        if kind == "softmax, mixed":
            continue
        functions = 3 if kind == "softmax" else 1
        options = {"covariance": shape}
        model = models.WeightSpaceVariationalGP(features(x, "fourier"), make(), ConstantMean(), **options)
        del functions
        target = targets(y)
        yield f"{kind}, {shape}: start", model.elbo(x, target).detach()
        if shape == "full" and kind != "softmax":
            model.natural_step(x, target, step_size=0.5)
            model.natural_step(x[:20], target[:20], num_data=60, step_size=0.3)
        yield from ((f"{kind}, {shape}: {name}", value) for name, value in gradients(model.elbo(x, target), model))
        yield from ((f"{kind}, {shape}: {name}", value) for name, value in moments(model.posterior(xs)))
    for strategy in (training.Minibatches(epochs=2), training.Evidence()):
        model = models.WeightSpaceVariationalGP(features(x, "fourier"), BernoulliLikelihood())
        torch.manual_seed(0)
        rfgp.fit(model, x, (y > 0).double(), strategy=strategy, max_evaluations=3, progress=False)
        yield f"trained, {type(strategy).__name__}", model.posterior(xs).mean.detach()


def heteroscedastic():
    x, y, xs = rows()
    for outputs in (1, 2):
        kernel = features(x, "fourier")
        if outputs == 2:
            kernel = rfgp.approximate(MultitaskKernel(exact(), 2, rank=1), 12, train_inputs=x, seed=0, method="fourier")
        targets = y if outputs == 1 else torch.stack([y, y.square()], dim=-1)
        model = models.HeteroscedasticGP(kernel, features(x, "fourier", 8)).condition(x, targets)
        yield f"{outputs}: bound", torch.as_tensor(model.bound)
        for name in ("posterior", "predictive"):
            found = getattr(model, name)(xs)
            yield f"{outputs}: {name}, mean", found.mean.detach()
            yield f"{outputs}: {name}, variance", found.variance.detach()
        yield f"{outputs}: noise", model.noise_variance(xs).detach()
        yield f"{outputs}: densities", model.log_prob(xs, targets[:POINTS]).detach()
        summary = rfgp.fit(model, x, targets, max_evaluations=3, progress=False)
        yield f"{outputs}: trained", torch.tensor(summary.log_marginal_likelihood)


def stream_models():
    """Windows, forgetting and banks, on features, in blocks and on a grid."""
    x, y, xs = rows(columns=1)
    grid = functools.partial(features, torch.tensor([[0.0], [2.0]]), "fourier_grid", 21)
    parts = [part for part in torch.arange(60).split(15)]
    for name, make in (("fourier", functools.partial(features, x, "fourier")), ("grid", grid)):
        model = functools.partial(models.WeightSpaceGP, likelihood=gaussian(), mean=ConstantMean())
        window = streams.SlidingWindow(model(make()), size=30)
        fading = streams.Forgetting(model(make()), 0.95)
        bank = streams.LengthscaleBank(streams.SlidingWindow(model(make()), 40), (0.5, 1.0, 2.0), learn_every=30)
        faded = streams.LengthscaleBank(streams.Forgetting(model(make()), 0.95), (0.5, 1.0, 2.0))
        for part in parts:
            for stream in (window, fading, bank, faded):
                stream.update(x[part], y[part])
        for kind, found in (("window", window.model), ("forgetting", fading.model), ("bank", bank), ("faded", faded)):
            yield from ((f"{name}, {kind}: {key}", value) for key, value in moments(found.posterior(xs)))
            yield f"{name}, {kind}: evidence", found.log_marginal_likelihood().detach()
        yield f"{name}: weights", bank.weights.detach()
        yield f"{name}: predictive", bank.predictive(xs).variance.detach()
        yield f"{name}: error", torch.tensor(window.model.refit_error(x[-30:], y[-30:]).largest) > 1e-6
        yield f"{name}: refitted", window.refit().model.posterior(xs).mean.detach()
    block = models.WeightSpaceGP(features(x), gaussian(), block_size=12)
    window = streams.SlidingWindow(block, size=30)
    for part in parts:
        window.update(x[part], y[part])
    yield from moments(block.posterior(xs), "window of blocks")


def maps():
    """Maps of every model with points, in memory and into arrays."""
    for name, make in SAVED.items():
        model = make()
        if isinstance(model, models.VectorLeastSquares | models.LocalizedMaclaurinGP):
            continue
        x = torch.randn(23, 3, generator=torch.Generator().manual_seed(3))
        for dtype in (None, torch.float64):
            try:
                found = rfgp.predict_map(model, x, dtype=dtype, progress=False)
            except ValueError as error:
                yield f"{name}, {dtype}: {str(error)[:40]}", torch.zeros(1)
                continue
            yield f"{name}, {dtype}: mean", found.mean
            yield f"{name}, {dtype}: variance", found.variance


def grids():
    """Fourier grids of one to three inputs, of every spectrum, means, wide ones, fields, and maps of regular points."""
    bases = {
        "rbf": RBFKernel,
        "matern": lambda: MaternKernel(nu=2.5),
        "rational quadratic": RQKernel,
        "laplace": kernels.LaplaceKernel,
    }
    for (name, make), columns in itertools.product(bases.items(), (1, 2)):
        x, y, xs = rows(columns=columns)
        kernel = features(x, "fourier_grid", (21, 81)[columns - 1], make())
        model = models.WeightSpaceGP(kernel, gaussian(), LinearMean(columns)).condition(x, y)
        found = itertools.chain(
            gradients(model.log_marginal_likelihood(), model), moments(model.posterior(xs)), drawn(model, xs)
        )
        yield from ((f"{name}, {columns}: {key}", value) for key, value in found)
        axes = [torch.linspace(0.1, 1.9, 4, dtype=torch.float64)] * columns
        (points,) = next(iter(data.GridSource(axes)))
        with torch.no_grad():
            yield f"{name}, {columns}: regular", model.posterior(points).variance
            yield f"{name}, {columns}: regular draws/sample", next(iter(dict(drawn(model, points)).values()))
        yield f"{name}, {columns}: points", model.point_predictor()(points).variance
        rfgp.fit(model, x, y, max_evaluations=6, progress=False)
        yield f"{name}, {columns}: trained", model.log_marginal_likelihood().detach()
    x, y, xs = rows()
    makers = {key: models.WeightSpaceGP(features(x, "fourier_grid", 81, bases[key]()), gaussian()) for key in bases}
    scores = training.compare(makers, x, y)
    yield from ((f"compared, {key}", torch.tensor(scores[key])) for key in bases)
    wide = models.WeightSpaceGP(features(x, "fourier_grid", 4225, MaternKernel(nu=0.5)), gaussian()).condition(x, y)
    with torch.no_grad():
        yield "wide, mean", wide.posterior(xs).mean
        yield "wide, variance", wide.posterior(xs).variance
        yield "wide, evidence", wide.log_marginal_likelihood()
    field = rfgp.approximate(kernels.CurlFreeKernel(RBFKernel()), 81, method="fourier_grid", train_inputs=x)
    model = models.WeightSpaceGP(field, MultitaskGaussianLikelihood(2)).condition(x, torch.stack([y, y.square()], -1))
    yield from moments(model.posterior(xs), "field")
    spaces = models.WeightSpaceGP(features(rows(columns=3)[0], "fourier_grid", 343), gaussian())
    x, y, xs = rows(columns=3)
    yield from moments(spaces.condition(x, y).posterior(xs), "space")


def mixtures():
    x, y, xs = rows()
    for method in ("fourier", "tensor_srht"):
        kernel = features(x, method, base=PolynomialKernel(power=2) if method == "tensor_srht" else None)
        model = models.WeightSpaceGP(kernel, gaussian(), num_draws=3).condition(x, y)
        yield from gradients(model.log_marginal_likelihood(), model)
        yield from ((f"{method}: {name}", value) for name, value in moments(model.posterior(xs)))
        yield from left_out(model.leave_one_out(x, y), f"{method}: leave one out")
        yield from drawn(model, xs, f"{method}: draws/sample")
        yield f"{method}: update", model.update(x[:5], y[:5]).posterior(xs).mean.detach()


def files():
    """Predictions of models that went through a file, with rows and without them."""
    for name, make in SAVED.items():
        model = make()
        with tempfile.TemporaryDirectory() as folder:
            options = {"with_rows": True} if name in WITH_ROWS else {}
            try:
                loaded = through_a_file(model, f"{folder}/model.pt", **options)
            except TypeError:
                loaded = through_a_file(model, f"{folder}/model.pt")
            for number, value in enumerate(predictions(loaded)):
                yield f"{name}, {number}{'/sample' if number == 3 else ''}", value


def estimators():
    """Estimators by default settings on small tables, with weights, gaps, classes and later rows."""
    x, y, xs = (values.numpy() for values in rows(columns=3))
    regressor = rfgp.sklearn.RandomFeatureGPRegressor
    tables = {
        "one": y,
        "two": np.stack([y, y**2], axis=-1),
        "gaps": np.where(np.arange(120).reshape(60, 2) % 7 == 0, np.nan, np.stack([y, y**2], axis=-1)),
    }
    for name, targets in tables.items():
        for noise in ("gaussian", "student"):
            try:
                model = regressor(max_evaluations=8, random_state=0, noise=noise).fit(x, targets)
            except ValueError as error:
                yield f"{name}, {noise}: {str(error)[:40]}", torch.zeros(1)
                continue
            mean, std = model.predict(xs, return_std=True)
            yield f"{name}, {noise}: mean", torch.as_tensor(mean)
            yield f"{name}, {noise}: std", torch.as_tensor(std)
            yield f"{name}, {noise}: draws/sample", torch.as_tensor(model.sample_y(xs, 2, random_state=0))
    model = regressor(max_evaluations=8, random_state=0).fit(x, y, sample_weight=np.linspace(0.5, 2.0, 60))
    yield "weights", torch.as_tensor(model.partial_fit(xs, y[:POINTS]).predict(xs))
    many = np.sin(x[:, :1] * np.linspace(1.0, 3.0, 40))
    yield "forty outputs", torch.as_tensor(regressor(max_evaluations=4, random_state=0).fit(x, many).predict(xs))
    for classes in (2, 3):
        labels = np.digitize(y, np.linspace(-0.5, 0.5, classes + 1)[1:-1])
        model = rfgp.sklearn.RandomFeatureGPClassifier(max_evaluations=8, random_state=0).fit(x, labels)
        yield f"{classes} classes", torch.as_tensor(model.predict_proba(xs))
    for kernel in ("rbf", "matern32", "polynomial"):
        found = rfgp.sklearn.RandomFeatures(kernel, num_features=16, random_state=0).fit(x, y).transform(xs)
        yield f"features, {kernel}", torch.as_tensor(np.asarray(found))


def strategies():
    """Every strategy on every model that takes it: the parameters after a few evaluations."""
    x, y, _ = rows(90)
    several = torch.stack([y, y.square()], dim=-1)
    gaps = several.masked_fill(torch.arange(180).reshape(90, 2) % 7 == 0, torch.nan)
    tasks = MultitaskGaussianLikelihood
    makers = {
        "fourier": lambda: (models.WeightSpaceGP(features(x, "fourier"), gaussian(), ConstantMean()), y),
        "blocks": lambda: (models.WeightSpaceGP(features(x), gaussian(), ConstantMean(), block_size=20), y),
        "classes": lambda: (
            models.WeightSpaceGP(
                features(x),
                likelihoods.DirichletClassificationLikelihood(num_classes=3, dtype=torch.float64),
                block_size=20,
            ),
            three(y),
        ),
        "tasks": lambda: (task_model(x, tasks(2), block_size=20), several),
        "tasks with gaps": lambda: (task_model(x, tasks(2)), gaps),
        "known noise": lambda: (
            models.WeightSpaceGP(features(x), FixedNoiseGaussianLikelihood(torch.full((90,), 0.1))),
            y,
        ),
        "laplace": lambda: (models.LaplaceGP(features(x), BernoulliLikelihood(), block_size=20), (y > 0).double()),
        "exact": lambda: (ExactModel(x, y, gaussian(), exact()), None),
        "exact with features": lambda: (ExactModel(x, y, gaussian(), features(x, "fourier")), None),
    }
    names = ("auto", "evidence", "subset", "blocks", "neighbors", "leave_one_out")
    for (name, make), strategy in itertools.product(makers.items(), names):
        model, targets = make()
        arguments = () if targets is None else (x, targets)
        try:
            summary = rfgp.fit(model, *arguments, strategy=strategy, max_evaluations=5, progress=False)
        except ValueError as error:
            yield f"{name}, {strategy}: {str(error)[:40]}", torch.zeros(1)
            continue
        yield f"{name}, {strategy}: evidence", torch.tensor(summary.log_marginal_likelihood)
        parameters = [p.detach().flatten() for p in model.parameters()]
        yield f"{name}, {strategy}: parameters", torch.cat(parameters)
    model = makers["fourier"]()[0]
    yield "neighbor score", torch.tensor(training.neighbor_score(model, x, y, num_neighbors=10))
    found = training.compare(
        {key: models.WeightSpaceGP(features(x, base=base), gaussian()) for key, base in COMPARED.items()}, x, y
    )
    yield from ((f"compared, {key}", torch.tensor(value)) for key, value in sorted(found.items()))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=30)
    rfgp.fit(model, loader, max_evaluations=4, progress=False)
    yield "loader", model.log_marginal_likelihood().detach()


COMPARED = {"smooth": RBFKernel(), "rough": MaternKernel(nu=0.5)}


def task_model(x, likelihood, rank=1, **options):
    kernel = MultitaskKernel(exact(), 2, rank=rank)
    kernel.task_covar_module.covar_factor.data = torch.tensor([[0.8], [0.5]])
    kernel.task_covar_module.var = torch.tensor([0.2, 0.3])
    made = rfgp.approximate(kernel, 10, method="landmarks", train_inputs=x, seed=0)
    return models.WeightSpaceGP(made, likelihood, MultitaskMean(ConstantMean(), 2), **options)


def many_rows():
    """Strategies that begin above 2,000 rows."""
    x, y, xs = rows(2300)
    for name, make in (
        ("regression", lambda: models.WeightSpaceGP(features(x, width=32), gaussian(), block_size=128)),
        ("fourier", lambda: models.WeightSpaceGP(features(x, "fourier", 32), gaussian())),
        ("laplace", lambda: models.LaplaceGP(features(x, width=32), BernoulliLikelihood(), block_size=128)),
        ("tasks", lambda: task_model(x, MultitaskGaussianLikelihood(2), block_size=128)),
    ):
        model = make()
        targets = (y > 0).double() if name == "laplace" else torch.stack([y, -y], -1) if name == "tasks" else y
        rfgp.fit(model, x, targets, max_evaluations=6, progress=False)
        yield f"{name}: mean", model.posterior(xs).mean.detach()
        yield f"{name}: variance", model.posterior(xs).variance.detach()


def ways_of_rows():
    """Loaders, executors, sources, ranks, checkpoints and classes of which rows are held."""
    x, y, xs = rows()
    make = lambda: models.WeightSpaceGP(features(x, "fourier"), gaussian(), ConstantMean())  # noqa: E731
    parts = list(zip(x.split(13), y.split(13), strict=True))
    yield "batches", make().condition(parts).log_marginal_likelihood().detach()
    with ThreadPoolExecutor(2) as executor:
        model = make().condition([[part] for part in parts], executor=executor)
        yield "executor, tensors", make().condition(x, y, executor=executor).posterior(xs).variance.detach()
        yield from gradients(model.log_marginal_likelihood(), model)
    model = make().condition(parts)
    yield from ((f"batches: {name}", value) for name, value in gradients(model.log_marginal_likelihood(), model))
    source = data.ArraySource(x.numpy(), y, batch_size=10)
    with tempfile.TemporaryDirectory() as folder:
        model = make().condition(source, checkpoint=f"{folder}/sums", checkpoint_every=20, progress=False)
    yield "source", model.posterior(xs).mean.detach()
    whole = make().condition(x[:30], y[:30])
    yield "loaded", make().load_statistics(whole.draw_statistics).posterior(xs).mean.detach()
    labels = torch.arange(60) % 40
    likelihood = likelihoods.DirichletClassificationLikelihood(num_classes=40, dtype=torch.float64)
    model = models.WeightSpaceGP(features(x, "fourier"), likelihood).condition(x, labels)
    yield from moments(model.posterior(xs), "many classes")
    yield from left_out(model.leave_one_out(x, labels), "many classes")
    yield from drawn(model, xs, "many classes/sample")
    yield "many classes, update", model.update(x[:3], labels[:3]).log_marginal_likelihood().detach()
    yield "many classes, probabilities", likelihood.class_probabilities(model.posterior(xs))
    targets = torch.sin(x[:, :1] * torch.linspace(1.0, 2.0, 60)) + 0.1 * y[:, None]
    targets[::5, ::3] = torch.nan
    kernel = MultitaskKernel(exact(), 60, rank=2)
    kernel.task_covar_module.covar_factor.data = torch.linspace(0.2, 1.0, 120).reshape(60, 2).sin()
    kernel.task_covar_module.var = torch.full((60,), 0.2)
    made = rfgp.approximate(kernel, 140, method="fourier", train_inputs=x, seed=0)
    model = models.WeightSpaceGP(made, MultitaskGaussianLikelihood(60)).condition(x, targets)
    yield "imputed, mean", model.posterior(xs).mean.detach()
    yield "imputed, variance", model.posterior(xs).variance.detach()


def complex_values():
    """Complex targets: circular, improper, known noise; complex features of real targets."""
    x, y, xs = rows()
    z = torch.complex(y, x[:, 0] ** 2)
    improper = rfgp.approximate(MultitaskKernel(RBFKernel(), 2, rank=2), 12, method="fourier", train_inputs=x, seed=0)
    makers = {
        "circular": (features(x, "fourier:complex"), likelihoods.ComplexGaussianLikelihood()),
        "real features": (features(x, "fourier"), likelihoods.ComplexGaussianLikelihood()),
        "improper": (improper, likelihoods.ComplexGaussianLikelihood(has_pseudo_noise=True)),
        "known": (features(x, "fourier"), likelihoods.FixedNoiseComplexGaussianLikelihood(torch.full((60,), 0.1))),
    }
    for name, (kernel, likelihood) in makers.items():
        model = models.WeightSpaceGP(kernel, likelihood).condition(x, z)
        found = model.posterior(xs)
        yield f"{name}: mean", found.mean.detach()
        yield f"{name}: variance", found.variance.detach()
        yield from ((f"{name}: {key}", v) for key, v in gradients(model.log_marginal_likelihood(), model))
        yield from drawn(model, xs, f"{name}/sample")
        yield from left_out(model.leave_one_out(x, z), f"{name}: leave one out")
        noise = torch.full((4,), 0.2) if name == "known" else None
        yield f"{name}: update", model.update(x[:4], z[:4], noise).posterior(xs).mean.detach()
    model = models.WeightSpaceGP(features(x, "fourier:complex"), gaussian()).condition(x, y)
    yield from moments(model.posterior(xs), "complex features")
    yield from left_out(model.leave_one_out(x, y), "complex features: leave one out")


def exact_models():
    """GPyTorch's ExactGP: draws, blocks of outputs, leave-one-out, and BoTorch's view of a model."""
    x, y, xs = rows()
    for name in ("fourier", "landmarks", "tensor_srht:complex"):
        base = PolynomialKernel(power=2) if name.startswith("tensor") else None
        model = ExactModel(x, y, gaussian(), features(x, name, base=base))
        objective = training.LeaveOneOutPseudoLikelihood(model.likelihood, model)
        if name != "tensor_srht:complex":
            yield f"{name}: leave one out", objective(model(x), y).detach()
        model.eval()
        yield from ((f"{name}: {key}", value) for key, value in moments(model(xs)))
        torch.manual_seed(9)
        yield f"{name}/sample", models.sample_functions(model, 2)(xs).detach()
    for name in OUTPUT_KERNELS:
        u, v = output_rows(name)
        model = ExactOutputModel(
            u.double(), v.double(), output_likelihood(name, "one"), output_kernel(name), output_mean(name)
        )
        yield from ((f"{name}: {key}", value) for key, value in moments(model.double().eval()(u[:4].double())))
    model = rfgp.botorch.WeightSpaceModel(x, y.unsqueeze(-1), num_features=16, seed=0)
    yield "botorch, mean", model.posterior(xs).mean.detach()
    yield "botorch, left out", model.leave_out().posterior.mean.detach()
    more = model.condition_on_observations(xs, xs[:, :1])
    yield "botorch, conditioned", more.posterior(xs).variance.detach()


def wrapped_kernels():
    """Input transforms, observations, learned landmarks, registered compositions, lazily built and batched kernels."""
    x, y, xs = rows()
    torch.manual_seed(0)
    learned = (kernels.LinearMap(x), kernels.KumaraswamyWarp(x), kernels.SinhArcsinhWarp(x))
    for transform in (*learned, kernels.SphericalCoordinates()):
        made = kernels.InputTransformKernel(RBFKernel(), transform)
        for method in ("landmarks", "fourier"):
            kernel = rfgp.approximate(made, 12, method=method, train_inputs=x, seed=0)
            model = models.WeightSpaceGP(kernel, gaussian()).condition(x, y)
            name = f"{type(transform).__name__}, {method}"
            yield from ((f"{name}: {key}", v) for key, v in gradients(model.log_marginal_likelihood(), model))
    learned = rfgp.approximation.LandmarkKernel(RBFKernel(), x[:8], learn=True)
    model = models.WeightSpaceGP(ScaleKernel(learned), gaussian()).condition(x, y)
    yield from ((f"learned landmarks: {key}", v) for key, v in gradients(model.log_marginal_likelihood(), model))
    for method in ("landmarks_kmeans", "landmarks"):
        yield f"{method}, chosen", features(x, method).features(xs).abs().sum(-1).detach()
    seen = rfgp.functionals.observations
    exact_kernel = kernels.ObservationKernel(RBFKernel(), input_dim=2)
    places = torch.cat([seen.points(x[:30]), seen.segments(x[30:], x[:30])])
    made = rfgp.approximate(exact_kernel, 24, input_dim=2, seed=0)
    model = models.WeightSpaceGP(made, gaussian()).condition(places, y)
    yield from moments(model.posterior(seen.derivatives(xs, xs)), "observations")
    additive = kernels.OrthogonalAdditiveKernel(2)
    model = models.WeightSpaceGP(rfgp.approximate(additive, 12, method="landmarks", train_inputs=x, seed=0), gaussian())
    yield from moments(model.condition(x, y).posterior(xs), "additive")
    lcm = LCMKernel([RBFKernel(), MaternKernel(nu=1.5)], num_tasks=2, rank=1)
    torch.manual_seed(0)
    yield "lcm", rfgp.approximate(lcm, 16, input_dim=2, seed=0).features(xs).square().sum(-1).detach()
    kernel = rfgp.approximate(exact(RBFKernel()), 16, seed=0)
    yield "lazy", kernel(x[:4], xs).to_dense().detach()
    yield "batched", copy.deepcopy(kernel)(x[:6].reshape(2, 3, 2), xs[:3]).to_dense().detach()
    known = LIKELIHOODS["known"].make(torch.full((60,), 0.1).double())
    model = models.WeightSpaceGP(features(x, "optimized_maclaurin", base=RBFKernel()), known, residual="vfe").condition(
        x, y
    )
    yield from gradients(model.log_marginal_likelihood(), model)


@contextlib.contextmanager
def one_rank():
    """A process group of this process alone."""
    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    try:
        yield
    finally:
        torch.distributed.destroy_process_group()


def model_makers(x, y):
    """Models of every kind of sums, with targets."""
    table = torch.stack([y, y.square()], dim=-1)
    gaps = table.masked_fill(torch.arange(len(y))[:, None] % 5 == torch.arange(2), torch.nan)
    classes = functools.partial(likelihoods.DirichletClassificationLikelihood, dtype=torch.float64)
    fourier, grid = functools.partial(features, x, "fourier"), functools.partial(features, x, "fourier_grid", 81)
    gp = models.WeightSpaceGP
    return {
        "fourier": (lambda: gp(fourier(), gaussian(), ConstantMean()), y),
        "draws": (lambda: gp(fourier(), gaussian(), num_draws=2), y),
        "bound": (lambda: gp(features(x), gaussian(), residual="vfe"), y),
        "blocks": (lambda: gp(features(x), gaussian(), block_size=12), y),
        "blocks of classes": (lambda: gp(features(x), classes(num_classes=3), block_size=12), three(y)),
        "blocks of cells": (lambda: task_model(x, MultitaskGaussianLikelihood(2), block_size=12), gaps),
        "grid": (lambda: gp(grid(), gaussian()), y),
        "tasks": (lambda: task_model(x, MultitaskGaussianLikelihood(2, rank=1)), gaps),
        "classes": (lambda: gp(fourier(), classes(num_classes=3)), three(y)),
        "many classes": (lambda: gp(fourier(), classes(num_classes=40)), torch.arange(len(y)) % 40),
    }


def places_of_rows():
    """Rows on ranks and with workers, sums that are merged, checkpoints, copies, pickles and changes of every model."""
    x, y, xs = rows(80)
    for name, (make, targets) in model_makers(x, y).items():
        parts = list(zip(x.split(20), targets.split(20), strict=True))
        with ThreadPoolExecutor(2) as executor:
            model = make().condition([[part] for part in parts], executor=executor)
            yield f"{name}: executor", model.posterior(xs).variance.detach()
            with contextlib.suppress(ValueError):
                yield from ((f"{name}: {key}", v) for key, v in gradients(model.log_marginal_likelihood(), model))
            with contextlib.suppress(ValueError):
                strategy = training.Evidence(executor=executor, initialize=False)
                summary = rfgp.fit(make(), x, targets, strategy=strategy, max_evaluations=3, progress=False)
                yield f"{name}: fit by workers", torch.tensor(summary.log_marginal_likelihood)
        with one_rank():
            try:
                shard = rfgp.passes.Shard(parts)
                yield f"{name}: rank", make().condition(shard).posterior(xs).mean.detach()
                summary = rfgp.fit(make(), rfgp.passes.Shard(parts), max_evaluations=3, progress=False)
                yield f"{name}: fit of ranks", torch.tensor(summary.log_marginal_likelihood)
            except ValueError as error:
                yield f"{name}: {str(error)[:40]}", torch.zeros(1)
        with torch.no_grad():
            whole = make().condition(x[:60], targets[:60]).merge(make().condition(x[60:], targets[60:]))
            yield f"{name}: merged", whole.posterior(xs).mean
            yield f"{name}: pickled", pickle.loads(pickle.dumps(whole)).posterior(xs).mean
            yield f"{name}: changed", whole.downdate(x[:20], targets[:20]).forget(0.9).posterior(xs).mean
            yield f"{name}: copied", copy.deepcopy(whole).update(x[:20], targets[:20]).posterior(xs).variance
            yield f"{name}: groups", whole.condition(x, targets).leave_group_out(x, targets, 7).group_log_prob
        with tempfile.TemporaryDirectory() as folder, contextlib.suppress(ValueError):
            for _ in range(2):
                options = {"checkpoint": f"{folder}/sums", "checkpoint_every": 20, "progress": False}
                yield f"{name}: checkpoint", make().condition(parts, **options).posterior(xs).mean.detach()


def states():
    """States of every model that can be saved."""
    for name, make in SAVED.items():
        model, again = make(), make()
        if not hasattr(model, "load_state_dict"):
            continue
        again.load_state_dict(model.state_dict())
        for number, value in enumerate(predictions(again)):
            yield f"{name}, {number}{'/sample' if number == 3 else ''}", value


def composed_kernels():
    """Compositions of every kind, truncated, on grids, in GPyTorch's own sums, by ranking and with chosen widths."""
    x, y, xs = rows(columns=3)
    for name, make in COMPOSITIONS.items():
        exact_kernel = make()
        for method in ("fourier", "optimized_maclaurin", "landmarks"):
            try:
                kernel = rfgp.approximate(exact_kernel, 48, method=method, train_inputs=0.3 * x, seed=0)
                model = models.WeightSpaceGP(kernel, gaussian()).condition(0.3 * x, y)
            except ValueError as error:
                yield f"{name}, {method}: {str(error)[:40]}", torch.zeros(1)
                continue
            yield from ((f"{name}, {method}: {key}", value) for key, value in moments(model.posterior(0.3 * xs)))
            yield from ((f"{name}, {method}: {key}", v) for key, v in gradients(model.log_marginal_likelihood(), model))
            variance = rfgp.approximation.hilbert_schmidt_variance(kernel, 0.3 * xs, 0.3 * x[:4])
            yield f"{name}, {method}: variance", torch.zeros(0) if variance is None else variance.detach()
            seconds = rfgp.approximation.selection.predicted_error(kernel, 0.3 * x)
            yield f"{name}, {method}/sample", torch.tensor(seconds.relative_error)
    periodic = PeriodicKernel(active_dims=[0]) * RBFKernel(active_dims=[0, 1])
    for base in (RBFKernel() + MaternKernel(nu=1.5), periodic):
        kernel = rfgp.approximate(ScaleKernel(base), 121, method="fourier_grid", train_inputs=x[:, :2])
        model = models.WeightSpaceGP(kernel, gaussian()).condition(x[:, :2], y)
        yield from moments(model.posterior(xs[:, :2]), f"grid, {type(base).__name__}")
    first, second = (rfgp.approximate(exact(RBFKernel()), 16, input_dim=3, seed=seed) for seed in (0, 1))
    for name, kernel in (("sum", first + second), ("product", first * second), ("scaled", ScaleKernel(first + second))):
        model = ExactModel(x, y, gaussian(), kernel).eval()
        yield from ((f"of gpytorch, {name}: {key}", value) for key, value in moments(model(xs)))
        model = models.WeightSpaceGP(kernel, gaussian()).condition(x, y)
        yield from ((f"in weight space, {name}: {key}", value) for key, value in moments(model.posterior(xs)))
    selection = rfgp.approximation.selection
    for options in ({"tolerance": 0.3}, {"kl_per_point": 0.5}):
        with contextlib.suppress(ValueError):
            number = selection.suggest_num_features(exact(RBFKernel()), x, method="fourier", progress=False, **options)
            yield f"width, {options}/sample", torch.tensor(float(number))
    yield "posterior loss/sample", torch.tensor(selection.posterior_loss(first, x).coverage)


def folders_of_maps():
    """Maps into folders and files, in memory by workers, with noise, and without variances."""
    x, y, _ = rows()
    model = models.WeightSpaceGP(features(x, "fourier"), gaussian()).condition(x, y)
    points = torch.rand(500, 2, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(2) as executor:
        rfgp.predict_map(model, points, f"{folder}/map", progress=False)
        yield "folder", torch.from_numpy(np.load(f"{folder}/map/variance.npy"))
        rfgp.predict_map(model, points, f"{folder}/map.zarr", progress=False)
        rfgp.predict_map(model, points, f"{folder}/map.parquet", progress=False)
        found = rfgp.predict_map(model, points, noise=True, executor=executor, dtype=torch.float64, progress=False)
        yield "workers", found.variance
        yield "means", rfgp.predict_map(model, points, variance=False, progress=False).mean


def classes_by_regression():
    """Simplex codes, least squares on them, and trained classifiers of many rows."""
    x, y, xs = rows(2200)
    code = simplex
    labels = three(y)
    yield "code", code.simplex_code(4)
    yield "decoded", code.decode(code.encode(labels[:20], 3))
    for name, model in {
        "dirichlet": models.WeightSpaceGP(
            features(x, width=24),
            likelihoods.DirichletClassificationLikelihood(num_classes=3, dtype=torch.float64),
            block_size=100,
        ),
        "softmax": models.LaplaceGP(features(x, "fourier", 24), SoftmaxLikelihood(num_classes=3, mixing_weights=False)),
        "variational": models.WeightSpaceVariationalGP(features(x, "fourier", 24), BernoulliLikelihood()),
    }.items():
        torch.manual_seed(0)
        targets = (labels > 0).double() if name == "variational" else labels
        strategy = training.Minibatches(epochs=2) if name == "variational" else "auto"
        rfgp.fit(model, x, targets, strategy=strategy, max_evaluations=4, time_limit=600.0, progress=False)
        yield f"{name}: mean", model.posterior(xs).mean.detach()
    model = models.WeightSpaceVariationalGP(features(x, "fourier", 24), likelihoods.PoissonLikelihood())
    loader = torch.utils.data.DataLoader(
        torch.utils.data.TensorDataset(x, (3.0 * y.abs()).round()), batch_size=500, shuffle=False
    )
    rfgp.fit(model, loader, strategy=training.Minibatches(epochs=1), progress=False)
    yield "loader", model.posterior(xs).mean.detach()


def parts_of_gpytorch():
    """What GPyTorch asks of kernels and covariances: batches, indices, products, solutions, states, other landmarks."""
    x, y, xs = rows(columns=3)
    for name in ("rbf", "matern 3/2", "polynomial", "linear", "periodic, 3 columns"):
        case = KERNELS[name]
        inputs = x if case.columns == 3 else torch.cat([x, x[:, :1]], dim=-1)
        batched = ScaleKernel(case.make(batch_shape=torch.Size([2])), batch_shape=torch.Size([2]))
        kernel = rfgp.approximate(batched, 12, input_dim=case.columns, seed=0)
        yield f"{name}: batch", kernel(inputs[:5], inputs[:4]).to_dense().detach()
        yield f"{name}: element", kernel[1](inputs[:5]).to_dense().detach()
        single = rfgp.approximate(case.make(), 12, input_dim=case.columns, seed=0)
        yield f"{name}: expanded", single.expand_batch(torch.Size([2]))(inputs[:5]).to_dense().detach()
        waiting = rfgp.approximate(case.make(), 12, seed=5)
        waiting.load_state_dict(single.state_dict())
        yield f"{name}: state", waiting(inputs[:5]).to_dense().detach()
        variance = rfgp.approximation.hilbert_schmidt_variance(single, inputs[:5], inputs[:4])
        yield f"{name}: moments", torch.zeros(0) if variance is None else variance.detach()
    first, second = (rfgp.approximate(exact(RBFKernel()), 16, input_dim=3, seed=seed) for seed in (0, 1))
    a, b = (kernel(x).evaluate_kernel() for kernel in (first, second))
    noise = torch.full((60,), 0.1).double()
    operators = {"sum": a + b, "product": a * b, "scaled": 1.5 * a, "part": a[:20, :20]}
    for name, operator in operators.items():
        yield f"{name}: dense", operator.to_dense().detach()
        noisy = operator.add_diagonal(noise[: operator.shape[-1]])
        rhs = y[: operator.shape[-1]]
        yield f"{name}: solution", noisy.solve(rhs.unsqueeze(-1)).detach()
        for key, value in zip(
            ("quadratic", "log determinant"), noisy.inv_quad_logdet(rhs.unsqueeze(-1), True), strict=True
        ):
            yield f"{name}: {key}", value.detach()
    model = models.WeightSpaceGP(first, gaussian()).condition(x, y)
    covariance = model.posterior(xs).lazy_covariance_matrix
    yield "entries", covariance[torch.tensor([0, 2]), torch.tensor([1, 2])].detach()
    yield "part", covariance[2:5, 2:5].to_dense().detach()
    yield "times", (2.0 * covariance).to_dense().detach()
    yield "expanded", covariance.expand(2, POINTS, POINTS).to_dense().detach()
    for method in ("landmarks_greedy", "landmarks_kmeans"):
        yield method, features(x, method).features(xs).square().sum(-1).detach()
    groups = training.LeaveOut(groups=torch.arange(60) // 6)
    for kernel in (first, features(x)):
        model = models.WeightSpaceGP(kernel, gaussian())
        rfgp.fit(model, x, y, strategy=groups, max_evaluations=3, progress=False)
        yield f"groups, {type(kernel.base_kernel).__name__}", model.log_marginal_likelihood().detach()
    tiny = GaussianLikelihood(noise_constraint=gpytorch.constraints.Positive())
    tiny.noise = 1e-9
    model = models.WeightSpaceGP(first, tiny).condition(x, y)
    yield "tiny noise", model.log_marginal_likelihood().detach()
    for name, base in {
        "sum": RBFKernel() + MaternKernel(nu=1.5),
        "product": RBFKernel() * MaternKernel(nu=1.5),
    }.items():
        seen = rfgp.functionals.observations
        kernel = rfgp.approximate(kernels.ObservationKernel(ScaleKernel(base), input_dim=3), 32, input_dim=3, seed=0)
        model = models.WeightSpaceGP(kernel, gaussian()).condition(seen.points(x), y)
        yield f"observed {name}", model.posterior(seen.derivatives(xs, xs)).variance.detach()
    grid = kernels.ObservationKernel(exact(RBFKernel()), input_dim=1)
    seen = rfgp.functionals.observations.points(x[:, :1])
    kernel = rfgp.approximate(grid, 41, method="fourier_grid", train_inputs=seen)
    yield from moments(models.WeightSpaceGP(kernel, gaussian()).condition(seen, y).posterior(seen[:5]), "observed grid")


def least_squares_of_rows():
    """Least squares of batches, by L-BFGS, with weights and operators; classes of which the rows are held."""
    x, y = output_rows("helmholtz", 40)
    for name, options in {"exact": {}, "by L-BFGS": {"solver": "lbfgs"}}.items():
        model = models.VectorLeastSquares(output_kernel("helmholtz"), regularization=1e-3, **options)
        with contextlib.suppress(ValueError, TypeError):
            yield f"{name}, batches", model.fit(list(zip(x.split(10), y.split(10), strict=True))).predict(x[:4])
        yield f"{name}, whole", model.fit(x, y).predict(x[:4])
    u, _, us = rows(200)
    labels = torch.arange(200) % 50
    make = functools.partial(likelihoods.DirichletClassificationLikelihood, num_classes=50, dtype=torch.float64)
    model = models.WeightSpaceGP(features(u, "fourier", 40), make())
    with torch.no_grad():
        model.condition(u[:150], labels[:150]).update(u[150:], labels[150:])
        yield "held, evidence", model.log_marginal_likelihood()
        yield "held, mean", model.posterior(us).mean
        other = models.WeightSpaceGP(features(u, "fourier", 40), make()).condition(u[:20], labels[:20])
        yield "held, merged", model.merge(other).posterior(us).variance
        yield "held, fewer", model.downdate(u[:20], labels[:20]).forget(0.5).posterior(us).mean
        yield from moments(model.posterior(us), "held")
        points = model.point_predictor()(us)
        yield "held, points", points.variance


def periods():
    """Periods and frequencies that are learned from starts in the data."""
    t = 60.0 * rows(columns=1)[0].sort(dim=0).values
    y = torch.sin(0.3 * t[:, 0]) + 0.1 * rows()[1]
    for name, base in {
        "periodic": PeriodicKernel(),
        "cosine": CosineKernel(),
        "mixture": SpectralMixtureKernel(num_mixtures=2),
        "product": PeriodicKernel() * RBFKernel(),
    }.items():
        model = models.WeightSpaceGP(rfgp.approximate(base, 24, input_dim=1, seed=0), gaussian(), ConstantMean())
        summary = rfgp.fit(model, t, y, max_evaluations=3, progress=False)
        yield f"{name}: evidence", torch.tensor(summary.log_marginal_likelihood)
        yield f"{name}: parameters", torch.cat([p.detach().flatten() for p in base.parameters()])


def transformed_inputs():
    """Learned maps and warpings of the inputs: features, blocks with neighbors, and a few evaluations."""
    x, y, xs = rows()
    x, xs = 0.45 * x + 0.05, 0.45 * xs + 0.05
    for name, transform in {"map": kernels.LinearMap(x), "warping": kernels.KumaraswamyWarp(x)}.items():
        base = ScaleKernel(kernels.InputTransformKernel(MaternKernel(nu=1.5), transform)).double()
        for method, options in (("fourier", {}), ("landmarks", {}), ("landmarks", {"block_size": 16})):
            kernel = rfgp.approximate(base, 12, method=method, train_inputs=x, seed=0)
            model = models.WeightSpaceGP(kernel, gaussian(), **options).condition(x, y)
            key = f"{name}, {method}, {options}"
            yield from ((f"{key}: {part}", value) for part, value in moments(model.posterior(xs)))
            rfgp.fit(model, x, y, max_evaluations=3, progress=False)
            yield f"{key}: trained", model.log_marginal_likelihood().detach()


def parameters_by_name():
    """Parameters, constraints and priors of an exact kernel, by the names that GPyTorch gives them there."""
    x = rows()[0]
    for method in ("fourier", "landmarks"):
        kernel = rfgp.approximate(RBFKernel(ard_num_dims=2), 12, method=method, train_inputs=x, seed=0)
        kernel.initialize(lengthscale=0.4)
        yield f"{method}: lengthscale", kernel.lengthscale.detach()
        kernel.lengthscale = 0.7
        kernel.register_constraint("raw_lengthscale", gpytorch.constraints.Interval(0.1, 2.0))
        kernel.register_prior("lengthscale_prior", gpytorch.priors.GammaPrior(2.0, 3.0), "lengthscale")
        yield f"{method}: bounded", kernel(x[:4]).to_dense().detach()
        yield f"{method}: has", torch.tensor([float(kernel.has_lengthscale), float(kernel.is_stationary)])
        priors = [prior.log_prob(closure(module)).sum() for _, module, prior, closure, _ in kernel.named_priors()]
        yield f"{method}: prior", torch.stack(priors).detach()


class InducingModel(gpytorch.models.ApproximateGP):
    """GPyTorch's variational model at its start."""

    def __init__(self, kernel, points):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(points))
        super().__init__(gpytorch.variational.VariationalStrategy(self, points, distribution))
        self.mean_module, self.covar_module = ConstantMean(), kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


def operators_of_features():
    """Products, scales, rows and entries of kernel matrices of features, with what these leave over."""
    x, y, xs = rows()
    exact_kernel = exact(RBFKernel(), 1.5)
    short = features(x, "optimized_maclaurin:real", base=RBFKernel())
    for name, kernel in {"fourier": rfgp.approximate(exact_kernel, 8, input_dim=2, seed=0), "truncated": short}.items():
        a, b = (kernel(part).evaluate_kernel() for part in (x[:20], x[20:40]))
        yield f"{name}: of numbers", (2.0 * a + a * 3.0).to_dense().detach()
        yield f"{name}: less", (a * torch.tensor(-1.0)).to_dense().detach()
        for key, joined in (("sum", a + b), ("product", a * b)):
            residual = joined.residual() if hasattr(joined, "residual") else None
            yield f"{name}, {key}", torch.zeros(0) if residual is None else residual.variance().detach()
        cross = kernel(x[:5], xs).evaluate_kernel()
        scales = torch.tensor([0.5, 2.0])
        yield f"{name}: scaled", (cross * scales[:, None, None]).to_dense().detach()
        yield f"{name}: of a batch", cross.expand(2, 5, POINTS).to_dense().detach()
        yield f"{name}: transposed", (cross.mT @ y[:5]).detach()
        yield f"{name}: entries", cross[torch.tensor([0, 1]), torch.tensor([2, 3])].detach()
        yield f"{name}: rows", cross[1:3].to_dense().detach()
        more = a.cat_rows(kernel(xs, x[:20]).evaluate_kernel(), kernel(xs).evaluate_kernel())
        yield f"{name}: more rows", more.to_dense().detach()
        model = ExactModel(x, y, gaussian(), kernel).eval()
        yield from ((f"{name}, joint: {key}", value) for key, value in moments(model(torch.cat([x[:3], xs]))))
        yield f"{name}: diagonal", kernel(x[:5], x[:5].clone(), diag=True).detach()
        inducing = InducingModel(kernel, x[:5]).eval()
        yield from ((f"{name}, inducing points: {key}", value) for key, value in moments(inducing(xs)))
    shared = RBFKernel(ard_num_dims=2)
    fields = ScaleKernel(kernels.CurlFreeKernel(shared)) + ScaleKernel(kernels.DivergenceFreeKernel(shared))
    kernel = rfgp.approximate(fields, 16, input_dim=2, seed=0)
    variance = rfgp.approximation.hilbert_schmidt_variance(kernel, xs, x[:4])
    yield "fields: variance", torch.zeros(0) if variance is None else variance.detach()
    levels = torch.cat([x, torch.arange(60.0)[:, None] % 3], dim=-1)
    index = IndexKernel(3, rank=1, active_dims=[2])
    index.covar_factor.data = torch.tensor([[0.5], [0.8], [-0.3]])
    kernel = rfgp.approximate(
        RBFKernel(active_dims=[0, 1]) * index, 12, method="landmarks", train_inputs=levels, seed=0
    )
    model = models.WeightSpaceGP(kernel, gaussian(), block_size=16).condition(levels, y)
    yield from ((f"levels: {key}", v) for key, v in gradients(model.log_marginal_likelihood(), model))
    for name, base in {"rbf": RBFKernel(), "rough": MaternKernel(nu=1.5)}.items():
        kernel = rfgp.approximate(exact(base), None, method="fourier_grid", train_inputs=x)
        yield f"{name}: as many frequencies as rows tell of", kernel(xs).to_dense().detach()


OTHERS = (
    neighbors,
    parts_of_gpytorch,
    least_squares_of_rows,
    places_of_rows,
    states,
    composed_kernels,
    folders_of_maps,
    classes_by_regression,
    laplace,
    variational,
    heteroscedastic,
    stream_models,
    maps,
    grids,
    mixtures,
    files,
    estimators,
    strategies,
    many_rows,
    ways_of_rows,
    complex_values,
    exact_models,
    wrapped_kernels,
    periods,
    transformed_inputs,
    parameters_by_name,
    operators_of_features,
)


def run(function):
    """The values of a function by name, with the error that ended it."""
    found = {}
    warnings.simplefilter("ignore")
    try:
        for name, value in function():
            found[name] = value
    except Exception as error:
        found[f"{type(error).__name__}: {str(error)[:80]}"] = torch.zeros(1)
    return found
