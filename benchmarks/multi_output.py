"""Many outputs on real data: kernels that share information against independent models, with features and exact.

Held-out NLPD of noisy marginals and RMSE, in units of the training targets' standard deviations, over seeds. Joint is
the NLPD of all outputs of a row together, per output. All hyperparameters are of largest evidence.

rf1: 80 % of 8,996 hours, all 8 flows known, scored at 1,000 others. Hyperparameters come from 1,000 rows, predictions
from all; those of the exact models from 250 and 500. "Wide" models learn like the others, and predict with 1,024
features. Rows overlap in time. One reading of 78.9 at nasi2, where all others are below 6, is left out with the nine
rows that have it.
rf1, gauges missing: 1,500 hours, each flow known at a random 15 % of them of its own. Scored at 1,000 other hours, and
at the unknown entries of the 1,500 ("filled in"). The exact models have all observations here.
energy: 80 % of 768 buildings, both loads; the exact models have all rows.
wind: 4, 10 or 30 % of the 693 grid points of a window, the others held out. The models are of h (u, v) in Mercator
coordinates, h = cos(lat) / cos(center), where the decomposition on the sphere is one in the plane; predictions are
divided by h and scored in m/s. Divergence (that of the plane / h^2) and vorticity likewise, against the reference of
windspharm at all points of the window. Measurements are simulated: independent noise of 1 m/s is added to h (u, v).
NLPD is that of held-out measurements, RMSE that of means from the wind itself. The reference parts of the wind are
gradients of cubic splines through its potentials. Parts are known up to a field that is both, of which the constant is
taken from both, and nothing else. Models without parts enter with the whole field for either.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gpytorch
import numpy as np
import torch
from common import add_data_dir, add_plot, arguments, environment, markdown, mean_and_error, resumed, save_figure, write
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import IndexKernel, MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.likelihoods.hadamard_gaussian_likelihood import HadamardGaussianLikelihood
from linear_operator.utils.errors import NanError, NotPSDError
from scipy.interpolate import RectBivariateSpline
from torch import Tensor
from tqdm import tqdm

import rfgp
from rfgp.functionals import CurlFreePart, DivergenceFreePart
from rfgp.kernels import (
    CurlFreeKernel,
    DecomposableKernel,
    DivergenceFreeKernel,
    GraphLaplacianCovariance,
    HelmholtzKernel,
)
from rfgp.models import WeightSpaceGP
from rfgp.study import plots

WIDTH = {"rf1": 256, "missing": 128, "energy": 256, "wind": 512}
WIDE = 1024
EVALUATIONS = {"rf1": 25, "missing": 25, "energy": 40, "wind": 40}
TRAINING_ROWS = 1000
EXACT_TRAINING_ROWS, EXACT_ROWS = 250, 500
WINDOW = {"lat": (10.0, 60.0), "lon": (-80.0, 0.0)}
NOISE = 1.0
SHARES = (0.04, 0.1, 0.3)
HALF_LOG_2PI = 0.5 * np.log(2.0 * np.pi)


class ExactModel(gpytorch.models.ExactGP):
    """A zero-mean exact model of one or several outputs."""

    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ZeroMean()
        self.covar_module = kernel

    def forward(self, x):
        covariance = self.covar_module(x)
        outputs = covariance.shape[-1] // len(x)
        if outputs == 1:
            return MultivariateNormal(x.new_zeros(len(x)), covariance)
        return MultitaskMultivariateNormal(x.new_zeros(len(x), outputs), covariance)


class Predictions:
    """Means (M, T), and covariances (M, T, T) of the noisy outputs of each row."""

    def __init__(self, mean: Tensor, covariance: Tensor) -> None:
        self.mean, self.covariance = mean, covariance

    def score(self, y: Tensor) -> dict[str, Any]:
        """NLPD and RMSE per output, and the joint NLPD where no output is missing."""
        known = ~torch.isnan(y)
        residual = (y - self.mean).nan_to_num(0.0)
        variance = self.covariance.diagonal(dim1=-2, dim2=-1)
        nlpd = (HALF_LOG_2PI + 0.5 * variance.log() + 0.5 * residual.square() / variance) * known
        counts = known.sum(0)
        joint = None
        if bool(known.all()):
            normal = torch.distributions.MultivariateNormal(self.mean, self.covariance)
            joint = float(-normal.log_prob(y).mean()) / y.shape[-1]
        return {
            "nlpd": (nlpd.sum(0) / counts).tolist(),
            "rmse": (residual.square().sum(0) / counts).sqrt().tolist(),
            "joint": joint,
        }


def index_start(kernel):
    """Start the covariances of outputs from positively correlated ones, the same in every run."""
    for module in kernel.modules():
        if isinstance(module, IndexKernel):
            generator = torch.Generator().manual_seed(0)
            noise = torch.randn(module.covar_factor.shape, generator=generator, dtype=torch.float64)
            module.covar_factor.data = 0.3 + 0.2 * noise
            module.var = torch.full_like(module.var, 0.3)
    return kernel


def rbf(columns, share=1.0):
    """A Gaussian kernel with a lengthscale per column, which starts at the typical distance of standardized inputs."""
    kernel = RBFKernel(ard_num_dims=columns)
    kernel.lengthscale = share * columns**0.5
    return kernel


def multitask(columns, outputs, rank):
    return index_start(MultitaskKernel(rbf(columns), num_tasks=outputs, rank=rank))


def coregionalized(columns, outputs, rank):
    """The sum of two, one of them with short lengthscales."""
    parts = [MultitaskKernel(rbf(columns, share), num_tasks=outputs, rank=rank) for share in (0.5, 2.0)]
    return index_start(parts[0]) + index_start(parts[1])


def graph(columns, y):
    """Outputs that are alike where they are correlated over the training rows."""
    frame = np.ma.corrcoef(np.ma.masked_invalid(y.numpy()), rowvar=False).filled(0.0)
    similarity = torch.as_tensor(frame).clamp(0.0, 1.0)
    return DecomposableKernel(ScaleKernel(rbf(columns)), GraphLaplacianCovariance(similarity))


def noises(likelihood, outputs):
    """The noise variances of the outputs."""
    total = torch.zeros(outputs)
    if likelihood.has_task_noise:
        total = total + likelihood.task_noises
    return total + likelihood.noise if likelihood.has_global_noise else total


def blocks(predict: Callable, likelihood, x, outputs, rows=128) -> Predictions:
    """The predictions of a model of several outputs, from chunks of rows."""
    means, covariances = [], []
    with torch.no_grad():
        noise = torch.diag(noises(likelihood, outputs))
        for part in x.split(rows):
            latent = predict(part)
            dense = latent.covariance_matrix.unflatten(0, (-1, outputs)).unflatten(2, (-1, outputs))
            each = torch.arange(len(part))
            means.append(latent.mean)
            covariances.append(dense[each, :, each, :] + noise)
    return Predictions(torch.cat(means), torch.cat(covariances))


def likelihood_of(kernel, outputs):
    is_field = not any(isinstance(part, MultitaskKernel) for part in kernel.modules())
    if is_field:
        return MultitaskGaussianLikelihood(outputs, has_task_noise=False)
    return MultitaskGaussianLikelihood(outputs, has_global_noise=False)


def train(model, x, y, evaluations):
    """Hyperparameters from the first rows, the posterior from all."""
    rfgp.fit(model, x[:TRAINING_ROWS], y[:TRAINING_ROWS], max_evaluations=evaluations, progress=False)
    if len(x) > TRAINING_ROWS:
        with torch.no_grad():
            model.condition(x, y)


def training_rows(x):
    """From how many rows an exact model takes its hyperparameters: from all but those of rf1."""
    return EXACT_TRAINING_ROWS if len(x) == EXACT_ROWS else len(x)


def features(kernel, width, x, y, seed, evaluations, wide=None):
    """A trained weight-space model of several outputs, and how it predicts, with more features where that is asked."""
    approximate = rfgp.approximate(kernel, width, input_dim=x.shape[-1], seed=seed)
    model = WeightSpaceGP(approximate, likelihood_of(kernel, y.shape[-1]))
    start = time.perf_counter()
    train(model, x, y, evaluations)
    if wide is not None:
        model = widened(model, kernel, wide, x, y, seed)
    seconds = time.perf_counter() - start
    return model, seconds, lambda points: blocks(model.posterior, model.likelihood, points, y.shape[-1])


def widened(model, kernel, width, x, y, seed):
    """The posterior of all rows with the parameters of a trained model, and more features."""
    with torch.no_grad():
        return WeightSpaceGP(
            rfgp.approximate(kernel, width, input_dim=x.shape[-1], seed=seed), model.likelihood
        ).condition(x, y)


def exact(kernel, x, y, evaluations):
    """The same for an exact model of complete rows."""
    count = training_rows(x)
    model = ExactModel(x[:count], y[:count], likelihood_of(kernel, y.shape[-1]), kernel)
    start = time.perf_counter()
    rfgp.fit(model, max_evaluations=evaluations, progress=False)
    model.set_train_data(x, y, strict=False)
    seconds = time.perf_counter() - start
    return model, seconds, lambda points: blocks(model, model.likelihood, points, y.shape[-1])


def exact_missing(rank, x, y, evaluations):
    """The same for an exact model with missing outputs: one row per observation, with the number of its output."""
    columns, outputs = x.shape[-1], y.shape[-1]
    known = ~torch.isnan(y)
    data, tasks = RBFKernel(ard_num_dims=columns, active_dims=range(columns)), IndexKernel(outputs, rank=rank)
    data.lengthscale, tasks.active_dims = columns**0.5, torch.tensor([columns])
    index_start(tasks)
    rows = torch.cat([x[known.nonzero()[:, 0]], known.nonzero()[:, 1:].to(x)], dim=-1)
    likelihood = HadamardGaussianLikelihood(num_tasks=outputs, task_feature_index=columns)
    model = ExactModel(rows, y[known], likelihood, data * tasks)
    likelihood.noise = torch.full_like(likelihood.noise, 0.1)
    start = time.perf_counter()
    rfgp.fit(model, max_evaluations=evaluations, strategy=rfgp.training.Evidence(initialize=False), progress=False)
    seconds = time.perf_counter() - start

    def predict(points):
        means, variances = [], []
        with torch.no_grad(), gpytorch.settings.max_cholesky_size(10**6):
            for t in range(outputs):
                latent = model(torch.cat([points, points.new_full((len(points), 1), float(t))], dim=-1))
                means.append(latent.mean)
                variances.append(latent.variance + likelihood.noise.flatten()[t])
        return Predictions(torch.stack(means, -1), torch.diag_embed(torch.stack(variances, -1)))

    return model, seconds, predict


def exact_scalar(make, x, y, evaluations):
    """An exact model of one output; higher floors of the noise, then fewer steps, where a step has no likelihood."""
    count = training_rows(x)
    for floor, steps in ((1e-4, 1.0), (1e-3, 1.0), (1e-2, 1.0), (1e-2, 0.5), (1e-2, 0.25)):
        likelihood = GaussianLikelihood(noise_constraint=gpytorch.constraints.GreaterThan(floor))
        model = ExactModel(x[:count], y[:count], likelihood, ScaleKernel(make()))
        try:
            rfgp.fit(model, max_evaluations=round(steps * evaluations), progress=False)
            break
        except (NanError, NotPSDError):
            print(f"no likelihood at some step with a noise floor of {floor:g}")
    model.set_train_data(x, y, strict=False)
    return model


def independent(make: Callable, x, y, evaluations, width=None, seed=0, wide=None):
    """A scalar model per output, each with its own hyperparameters; with features where there is a width."""
    models, seconds = [], 0.0
    for t in range(y.shape[-1]):
        known = ~torch.isnan(y[:, t])
        start = time.perf_counter()
        if width is None:
            model: Any = exact_scalar(make, x[known], y[known, t], evaluations)
        else:
            kernel, own = ScaleKernel(make()), seed + 1000 * t
            model = WeightSpaceGP(
                rfgp.approximate(kernel, width, input_dim=x.shape[-1], seed=own), GaussianLikelihood()
            )
            train(model, x[known], y[known, t], evaluations)
            if wide is not None:
                model = widened(model, kernel, wide, x[known], y[known, t], own)
        seconds += time.perf_counter() - start
        models.append(model)

    def predict(points):
        with torch.no_grad(), gpytorch.settings.max_cholesky_size(10**6):
            latents = [m(points) if width is None else m.posterior(points) for m in models]
            variances = [d.variance + m.likelihood.noise for d, m in zip(latents, models, strict=True)]
        return Predictions(torch.stack([d.mean for d in latents], -1), torch.diag_embed(torch.stack(variances, -1)))

    return models, seconds, predict


def tabular_methods(name, x, y, seed, quick) -> Iterator[tuple[str, Callable]]:
    """Every method on one set of rows, to be called in turn."""
    columns, outputs = x.shape[-1], y.shape[-1]
    width, evaluations = (32, 4) if quick else (WIDTH[name], EVALUATIONS[name])
    is_complete = not bool(torch.isnan(y).any())
    kernels = {"multitask, rank 1": lambda: multitask(columns, outputs, 1)}
    if outputs > 2:
        kernels["multitask, rank 2"] = lambda: multitask(columns, outputs, 2)
    kernels[f"multitask, rank {outputs}"] = lambda: multitask(columns, outputs, outputs)
    if outputs > 2:
        kernels["graph Laplacian"] = lambda: graph(columns, y)
    for label, make in kernels.items():
        yield label, lambda make=make: features(make(), width, x, y, seed, evaluations)
    # the sum of two is not separable: all D T weights are in one system, as where outputs are missing
    total = min(width, 128) if outputs > 2 else width
    rank = min(outputs, 2)
    yield (
        f"sum of two, rank {rank}",
        lambda: features(coregionalized(columns, outputs, rank), total, x, y, seed, evaluations),
    )
    equal = 2 * round(width / outputs**0.5 / 2)
    yield "independent", lambda: independent(lambda: rbf(columns), x, y, evaluations, width, seed)
    yield "independent, equal cost", lambda: independent(lambda: rbf(columns), x, y, evaluations, equal, seed)
    if name == "rf1":
        wide = 2 * width if quick else WIDE
        yield (
            "multitask, rank 2, wide",
            lambda: features(multitask(columns, outputs, 2), width, x, y, seed, evaluations, wide),
        )
        yield "independent, wide", lambda: independent(lambda: rbf(columns), x, y, evaluations, width, seed, wide)
    count = 100 if quick else EXACT_ROWS if name == "rf1" else len(x)
    some = slice(0, count)
    if is_complete:
        label, make = list(kernels.items())[-1 if outputs == 2 else 1]
        yield f"exact {label}", lambda: exact(make(), x[some], y[some], evaluations)
    else:
        yield "exact multitask, rank 2", lambda: exact_missing(2, x[some], y[some], evaluations)
    yield "exact independent", lambda: independent(lambda: rbf(columns), x[some], y[some], evaluations)


def without_misreading(x, y):
    """The rows of rf1 without the reading at nasi2 that is 84 standard deviations from the others."""
    nasi2 = torch.cat([x[:, 1::8], y[:, 1:2]], dim=-1)
    kept = (nasi2 < 20.0).all(-1)
    return x[kept], y[kept]


def tabular(name, data_dir, seed, quick, keep, cell):
    """One split of a table."""
    data = rfgp.study.datasets.load("energy" if name == "energy" else "rf1", data_dir, output="all")
    x, y = torch.cat([data.x_train, data.x_test]), torch.cat([data.y_train, data.y_test])
    if data.name == "rf1":
        x, y = without_misreading(x, y)
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(len(x), generator=generator)
    cut = round(0.8 * len(x)) if name != "missing" else 1500
    if quick:
        cut = min(cut, 300)
    train, test = order[:cut], order[cut : cut + 1000]
    known = torch.ones(cut, y.shape[-1], dtype=torch.bool)
    if name == "missing":
        known = torch.rand(known.shape, generator=generator, dtype=torch.float64) < 0.15
    y_train = torch.where(known, y[train], torch.nan)
    deviation = torch.stack([column[~column.isnan()].std() for column in y_train.unbind(-1)])
    center = y_train.nanmean(0)
    x = (x - x[train].mean(0)) / x[train].std(0)
    y_train, y_test = (y_train - center) / deviation, (y[test] - center) / deviation
    hidden = torch.where(known, torch.nan, (y[train] - center) / deviation)
    cell |= {"outputs": data.outputs, "deviations": deviation.tolist()}
    for label, run in tabular_methods(name, x[train], y_train, seed, quick):
        if label in cell["methods"]:
            continue
        _, seconds, predict = run()
        result = predict(x[test]).score(y_test) | {"seconds": seconds}
        if name == "missing":
            filled = predict(x[train]).score(hidden)
            result |= {"filled_nlpd": filled["nlpd"], "filled_rmse": filled["rmse"]}
        cell["methods"][label] = result
        keep()


def parts_of_reference(field):
    """The curl-free and the divergence-free part of the wind at the points of a window, times its metric."""
    rows, columns = field.shape
    x, y = field.x[:columns, 0].numpy(), field.x[::columns, 1].numpy()
    flip = y[0] > y[-1]

    def gradient(values):
        grid = values.reshape(rows, columns).numpy()
        spline = RectBivariateSpline(y[::-1] if flip else y, x, grid[::-1] if flip else grid, s=0)
        points = field.x.numpy()
        both = [spline.ev(points[:, 1], points[:, 0], dx=0, dy=1), spline.ev(points[:, 1], points[:, 0], dx=1, dy=0)]
        return torch.as_tensor(np.stack(both, -1))

    chi, psi = gradient(field.velocity_potential), gradient(field.streamfunction)
    return chi, torch.stack([-psi[:, 1], psi[:, 0]], dim=-1)


def agreement(estimate, truth):
    """Correlation and RMSE of two fields, over all of their values."""
    pair = torch.stack([estimate.flatten(), truth.flatten()])
    is_constant = bool(estimate.std() < 1e-6 * truth.std())  # zero by construction, up to rounding
    return {
        "correlation": None if is_constant else float(torch.corrcoef(pair)[0, 1]),
        "rmse": float((estimate - truth).square().mean().sqrt()),
    }


def rates(mean: Callable, x):
    """Divergence and vorticity of a field in the plane, by automatic differentiation of its mean."""
    points = x.clone().requires_grad_(True)
    values = mean(points)
    rows = [torch.autograd.grad(values[:, i].sum(), points, retain_graph=True)[0] for i in range(2)]
    return rows[0][:, 0] + rows[1][:, 1], rows[1][:, 0] - rows[0][:, 1]


def plane_kernel():
    """A Gaussian kernel with one lengthscale, which starts at 1000 km."""
    kernel = RBFKernel()
    kernel.lengthscale = 1.0
    return kernel


WIND_KERNELS = {
    "Helmholtz": lambda: HelmholtzKernel(plane_kernel()),
    "divergence-free": lambda: ScaleKernel(DivergenceFreeKernel(plane_kernel())),
    "curl-free": lambda: ScaleKernel(CurlFreeKernel(plane_kernel())),
    "multitask, rank 2": lambda: index_start(MultitaskKernel(plane_kernel(), num_tasks=2, rank=2)),
}


def wind(share, data_dir, seed, quick, keep, cell):
    """One draw of the grid points to learn from."""
    field = rfgp.study.datasets.load_wind(data_dir).window(**WINDOW, projection="mercator")
    h, x = field.metric[:, :1], field.x
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(seed))
    train, test = order.tensor_split([round(share * len(x))])
    noise = torch.randn(len(x), 2, generator=torch.Generator().manual_seed(100 + seed))
    measured = field.velocity + NOISE * noise / h
    y = h * measured
    center, scale = y[train].mean(0), y[train].std()
    y = (y - center) / scale
    large = field.velocity[test].std()
    cell |= {"outputs": ("u", "v"), "deviations": [float(large)] * 2, "rows": len(train)}
    references = parts_of_reference(field)
    whole = (sum(references) - h * field.velocity) / h
    cell["spline_residual"] = float(whole.square().mean().sqrt())
    width, evaluations = (64, 5) if quick else (WIDTH["wind"], EVALUATIONS["wind"])

    def record(label, seconds, predict, mean, parts):
        made = predict(x[test])
        unit = scale / h[test] / large
        scaled = Predictions(
            (made.mean * scale + center) / h[test] / large, made.covariance * unit.unsqueeze(-1).square()
        )
        result = scaled.score(measured[test] / large) | {"seconds": seconds}
        result["rmse"] = scaled.score(field.velocity[test] / large)["rmse"]
        divergence, vorticity = rates(mean, x)
        for name, value in (("divergence", divergence), ("vorticity", vorticity)):
            result[name] = agreement(value.detach() * scale / h[:, 0].square(), getattr(field, name))
        for name, value, reference in zip(("curl_free_part", "divergence_free_part"), parts, references, strict=True):
            part, reference_part = value.detach() * scale / h, reference / h
            result[name] = agreement(part - part.mean(0), reference_part - reference_part.mean(0))
        cell["methods"][label] = result
        keep()

    data = x[train], y[train]
    for label, make in WIND_KERNELS.items():
        if label not in cell["methods"]:
            model, seconds, predict = features(make(), width, *data, seed, evaluations)
            with torch.no_grad():
                operators = (CurlFreePart(), DivergenceFreePart()) if label == "Helmholtz" else ()
                parts = [model.posterior(x, operator).mean for operator in operators] or unsplit(label, predict, x)
            record(label, seconds, predict, lambda points, m=model: m.posterior(points).mean, parts)
        if f"exact {label}" not in cell["methods"]:
            model, seconds, predict = exact(make(), *data, evaluations)
            parts = exact_parts(model, x) if label == "Helmholtz" else unsplit(label, predict, x)
            record(f"exact {label}", seconds, predict, lambda points, m=model: m(points).mean, parts)
    for label, size in (("independent", width), ("exact independent", None)):
        if label not in cell["methods"]:
            models, seconds, predict = independent(plane_kernel, *data, evaluations, size, seed)
            posteriors = [model if size is None else model.posterior for model in models]

            def mean(points, posteriors=posteriors):
                return torch.stack([posterior(points).mean for posterior in posteriors], dim=-1)

            record(label, seconds, predict, mean, unsplit(label, predict, x))


def unsplit(label, predict, x):
    """The parts of a model that knows only one of them, and the whole field as either where it knows none."""
    whole = predict(x).mean
    zeros = torch.zeros_like(whole)
    parts = {"divergence-free": (zeros, whole), "curl-free": (whole, zeros)}
    return parts.get(label, (whole, whole))


def exact_parts(model, x):
    """The means of the two parts of an exact Helmholtz model."""
    kernel, data, targets = model.covar_module, model.train_inputs[0], model.train_targets.flatten()
    with torch.no_grad(), gpytorch.settings.lazily_evaluate_kernels(False):
        total = kernel(data).to_dense() + model.likelihood.noise * torch.eye(len(targets))
        weights = torch.linalg.solve(total, targets)
        return [
            (part(x, data).to_dense() @ weights).unflatten(0, (-1, 2))
            for part in (kernel.curl_free, kernel.divergence_free)
        ]


def table(result, setting, measures, methods=None):
    """Mean and standard error over seeds, one row per method."""
    cells = [cell for key, cell in result["cells"].items() if key.startswith(f"{setting}/")]
    names = methods or list(dict.fromkeys(name for cell in cells for name in cell["methods"]))
    rows = []
    for name in names:
        runs = [cell["methods"][name] for cell in cells if name in cell["methods"]]
        values = [[value_of(run, measure) for run in runs] for measure in measures]
        rows.append([name, *["-" if None in v else "{:.3f} ± {:.3f}".format(*mean_and_error(v)) for v in values]])
    return markdown(["method", *measures], rows)


def value_of(run, measure):
    """A score of one run: averages over outputs; "divergence r" is a correlation and "divergence" an RMSE."""
    name, _, kind = measure.partition(" ")
    value = run.get(name)
    if isinstance(value, dict):
        return value["correlation" if kind == "r" else "rmse"]
    return float(np.mean(value)) if isinstance(value, list) else value


def per_output(result, setting, methods):
    """NLPD, RMSE and RMSE in the units of the data per output."""
    cells = [cell for key, cell in result["cells"].items() if key.startswith(f"{setting}/")]
    outputs = cells[0]["outputs"]
    rows = []
    for name in methods:
        runs = [(cell["methods"][name], cell["deviations"]) for cell in cells if name in cell["methods"]]
        for measure in ("nlpd", "rmse"):
            shown = [
                "{:.3f} ± {:.3f}".format(*mean_and_error([run[measure][t] for run, _ in runs]))
                for t in range(len(outputs))
            ]
            rows.append([name, measure, *shown])
        physical = [
            "{:.3g} ± {:.2g}".format(*mean_and_error([run["rmse"][t] * unit[t] for run, unit in runs]))
            for t in range(len(outputs))
        ]
        rows.append([name, "rmse, units", *physical])
    return markdown(["method", "", *outputs], rows)


def report(result):
    """Print the tables."""
    settings = list(dict.fromkeys(key.rsplit("/", 1)[0] for key in result["cells"]))
    for setting in settings:
        count = sum(key.startswith(f"{setting}/") for key in result["cells"])
        print(f"\n### {setting}, {count} seeds, standardized\n")
        measures = ["nlpd", "rmse", "joint", "seconds"]
        if setting == "missing":
            measures[2:3] = ["filled_nlpd", "filled_rmse"]
        print(table(result, setting, measures))
        if setting.startswith("wind"):
            print("\ncorrelation, and RMSE in 10^-6/s or m/s\n")
            names = ("divergence", "vorticity", "curl_free_part", "divergence_free_part")
            print(table(result, setting, [f"{n}{kind}" for n in names for kind in (" r", "")]))
        else:
            names = next(cell["methods"] for key, cell in result["cells"].items() if key.startswith(f"{setting}/"))
            chosen = [
                n
                for n in names
                if n.endswith("wide") or n in ("multitask, rank 2", "independent") or n.startswith("exact")
            ]
            print("\nper output; units are those of the data\n")
            print(per_output(result, setting, chosen))


def draw(result, out):
    """Every method relative to independent models of its kind, on the tables and on the wind."""
    settings = list(dict.fromkeys(key.rsplit("/", 1)[0] for key in result["cells"]))
    winds = [setting for setting in settings if setting.startswith("wind")]
    columns = []
    for setting in settings:
        title = {"rf1": "rf1, complete rows", "missing": "rf1, gauges missing:\nother hours"}.get(setting, setting)
        columns += [] if setting in winds else [(setting, title, ("nlpd", "rmse"))]
        if setting == "missing":
            columns.append((setting, "rf1, gauges missing:\nfilled in", ("filled_nlpd", "filled_rmse")))
    panels(result, columns, out)
    measures = ("nlpd", "rmse", "divergence", "vorticity")
    counts = {setting: cells_of(result, setting)[0]["rows"] for setting in winds}
    panels(result, [(s, f"wind, {counts[s]} points", measures) for s in winds], out.with_stem(f"{out.stem}_wind"))


LABELS = {"nlpd": "NLPD", "rmse": "RMSE", "divergence": "RMSE of divergence, $10^{-6}$/s"}
LABELS |= {"filled_nlpd": "NLPD", "filled_rmse": "RMSE", "vorticity": "RMSE of vorticity, $10^{-6}$/s"}


def cells_of(result, setting):
    return [cell for key, cell in result["cells"].items() if key.startswith(f"{setting}/")]


def panels(result, columns, out):
    """Paired differences from the independent models with features, or from the exact ones."""
    if not columns:
        return
    figure, axes = plots.figure(len(columns[0][2]), len(columns), width=3.9, height=2.6)
    for column, (setting, title, measures) in zip(axes.T, columns, strict=True):
        cells = cells_of(result, setting)
        names = list(dict.fromkeys(name for cell in cells for name in cell["methods"]))
        order = list(dict.fromkeys(name.removeprefix("exact ") for name in names))
        order.sort(key="independent".__eq__)
        column[0].set_title(title)
        for ax, measure in zip(column, measures, strict=True):
            ends = []
            for name in names:
                is_exact = name.startswith("exact")
                other = "exact independent" if is_exact else "independent"
                other += ", wide" if name.endswith(", wide") else ""
                runs = [c["methods"] for c in cells if name in c["methods"] and other in c["methods"]]
                if not runs:
                    continue
                gaps = [value_of(run[name], measure) - value_of(run[other], measure) for run in runs]
                mean, error = mean_and_error(gaps)
                place = order.index(name.removeprefix("exact ")) + (0.15 if is_exact else -0.15)
                style = {"color": plots.EXACT, "marker": "D"} if is_exact else {"color": plots.COLORS[0], "marker": "o"}
                label = "exact" if is_exact else "features"
                ax.errorbar(mean, place, xerr=error, markersize=4.5, capsize=2, linestyle="none", label=label, **style)
                ends.append((mean, place, error))
            outside(ax, ends)
            ax.axvline(0.0, color="#888888", linewidth=0.8)
            ax.set_yticks(range(len(order)), order, fontsize="small")
            ax.invert_yaxis()
            ax.grid(True, axis="x", color="#DDDDDD", linewidth=0.6)
            ax.spines[["top", "right"]].set_visible(False)
            ax.set_xlabel(LABELS[measure])
    figure.suptitle("relative to independent models of the same kind; left is better", fontsize="medium")
    plots.legend(figure, list(axes.flat))
    save_figure(figure, out)


def outside(ax, ends):
    """End the axis where one or two methods are far off, and write their values at its border."""
    sizes = sorted(abs(mean) + (0.0 if np.isnan(error) else error) for mean, _, error in ends)
    limit = 1.25 * sizes[max(0, round(0.78 * len(sizes)) - 1)]
    if sizes[-1] < 2.5 * limit:
        return
    ax.set_xlim(max(-limit, 1.2 * min(m - (0.0 if np.isnan(e) else e) for m, _, e in ends) - 0.1 * limit), limit)
    for mean, place, _ in ends:
        if mean > limit:
            ax.text(limit, place, f"{mean:+.2g} →", ha="right", va="center", fontsize="x-small")


def main() -> None:
    parser = arguments(__doc__, "multi_output")
    add_data_dir(parser)
    add_plot(parser)
    parser.add_argument("--settings", nargs="+", default=["rf1", "missing", "energy", *[f"wind {s:g}" for s in SHARES]])
    parser.add_argument("--seeds", type=int, default=5)
    options = parser.parse_args()
    torch.set_default_dtype(torch.float64)
    warnings.filterwarnings("ignore", message=".*exceeds the .* training rows")
    result = json.loads(options.out.read_text()) if options.plot else resumed(options)
    if not options.plot:
        result |= {"environment": environment(), "width": WIDTH, "evaluations": EVALUATIONS}

        def keep():
            write(options.out, result)

        seeds = range(1 if options.quick else options.seeds)
        for seed, setting in tqdm([(seed, setting) for seed in seeds for setting in options.settings]):
            cell = result["cells"].setdefault(f"{setting}/{seed}", {"methods": {}})
            if setting.startswith("wind"):
                wind(float(setting.split()[1]), options.data_dir, seed, options.quick, keep, cell)
            else:
                tabular(setting, options.data_dir, seed, options.quick, keep, cell)
    report(result)
    if options.plot or not options.quick:
        draw(result, options.out)


if __name__ == "__main__":
    main()
