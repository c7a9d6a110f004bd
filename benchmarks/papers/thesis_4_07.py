"""Stochastic variational classification of MNIST: test error against training seconds (T Fig. 4.7).

A factorized normal posterior of the weights of (gamma x.y + nu)^6 features for each of ten classes, a softmax, Adam on
minibatches of 1,000 rows, 50 draws of the latent functions a step; gamma and nu are learned: output scale and offset.
The thesis has 10,240 columns, 50 to 150 epochs on a GPU, a learning rate of 10^-3 and ten runs. Here every method has
the same processor seconds, with fewer columns and a larger learning rate; test errors are measured outside of them.
Landmarks are features too. SVGP is GPyTorch's, with the exact kernel, inducing points that are learned, and a factor
of the covariance of every class.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import gpytorch
import torch
from gpytorch.kernels import PolynomialKernel, ScaleKernel
from gpytorch.likelihoods import SoftmaxLikelihood
from torch import Tensor

import rfgp
from rfgp.study import plots

from .. import common
from .data import unit_rows
from .item import Claim, Options

CLASSES, DRAWS, BATCH = 10, 50, 1000
FEATURES = {
    "CtR TensorSRHT": "tensor_srht:ctr",
    "TensorSRHT": "tensor_srht:real",
    "TensorSketch": "tensor_sketch:real",
    "landmarks": "landmarks",
}
SVGP = "SVGP"


@dataclass(frozen=True)
class Settings:
    """What the thesis has otherwise: 10,240 columns, a rate of 0.001, and 50 epochs or more in place of seconds."""

    seconds: float = 40.0
    width: int = 2048
    landmarks: int = 1024
    inducing: int = 256
    rate: float = 0.01
    seed: int = 0


QUICK = Settings(seconds=0.05, width=64, landmarks=32, inducing=16)


def exact_kernel() -> ScaleKernel:
    """(gamma x.y + nu)^6 as gamma^6 (x.y + nu / gamma)^6, which starts at ((x.y + 1) / 2)^6."""
    kernel = ScaleKernel(PolynomialKernel(power=6))
    kernel.base_kernel.offset, kernel.outputscale = 1.0, 0.5**6
    return kernel


class WeightSpace(torch.nn.Module):
    """Independent normal weights of features for every class."""

    def __init__(self, kernel: Any, width: int) -> None:
        super().__init__()
        self.kernel = kernel
        self.mean = torch.nn.Parameter(torch.zeros(width, CLASSES))
        self.log_deviation = torch.nn.Parameter(torch.full((width, CLASSES), -2.0))

    def functions(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of the latent functions, (N, C)."""
        features = self.kernel.features(x)
        return features @ self.mean, features.square() @ (2.0 * self.log_deviation).exp()

    def loss(self, x: Tensor, y: Tensor, num_rows: int) -> Tensor:
        """Minus the variational bound, divided by the number of rows."""
        mean, variance = self.functions(x)
        draws = mean + variance.sqrt() * torch.randn(DRAWS, *mean.shape)
        fit = -torch.nn.functional.cross_entropy(draws.flatten(0, 1), y.repeat(DRAWS))
        deviation = self.log_deviation
        divergence = 0.5 * ((2.0 * deviation).exp() + self.mean.square() - 1.0 - 2.0 * deviation).sum()
        return divergence / num_rows - fit


class Inducing(gpytorch.models.ApproximateGP):
    """GPyTorch's variational model: a distribution per class, inducing points and a kernel for all of them."""

    def __init__(self, points: Tensor) -> None:
        batch = torch.Size([CLASSES])
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(points), batch_shape=batch)
        one = gpytorch.variational.VariationalStrategy(self, points, distribution)
        super().__init__(gpytorch.variational.IndependentMultitaskVariationalStrategy(one, num_tasks=CLASSES))
        self.mean_module, self.covar_module = gpytorch.means.ZeroMean(), exact_kernel()
        self.likelihood = SoftmaxLikelihood(num_classes=CLASSES, mixing_weights=False)

    def forward(self, x: Tensor) -> gpytorch.distributions.MultivariateNormal:
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def functions(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of the latent functions, (N, C)."""
        found = self(x)
        return found.mean, found.variance

    def loss(self, x: Tensor, y: Tensor, num_rows: int) -> Tensor:
        """Minus the variational bound, divided by the number of rows."""
        with gpytorch.settings.num_likelihood_samples(DRAWS):
            bound = gpytorch.mlls.VariationalELBO(self.likelihood, self, num_data=num_rows)
            value: Tensor = -bound(self(x), y)
        return value


def make(name: str, options: Settings, x: Tensor) -> WeightSpace | Inducing:
    """The model of a method, before training."""
    torch.manual_seed(options.seed)
    if name == SVGP:
        return Inducing(x[torch.randperm(len(x))[: options.inducing]].clone())
    width = options.landmarks if name == "landmarks" else options.width
    train = {"train_inputs": x[:10_000]} if name == "landmarks" else {"input_dim": x.shape[-1]}
    kernel = rfgp.approximate(exact_kernel(), width, method=FEATURES[name], seed=options.seed, **train)
    return WeightSpace(kernel, kernel.features(x[:1]).shape[-1])


@torch.no_grad()
def test_scores(model: Any, x: Tensor, y: Tensor) -> tuple[float, float]:
    """Error rate and mean negative log likelihood of test rows, with the softmax averaged over draws."""
    model.eval()
    generator, wrong, loss = torch.Generator().manual_seed(0), 0, 0.0
    for rows, labels in zip(x.split(BATCH), y.split(BATCH), strict=True):
        mean, variance = model.functions(rows)
        draws = torch.randn(DRAWS, *mean.shape, generator=generator)
        probabilities = torch.softmax(mean + variance.sqrt() * draws, -1).mean(0)
        wrong += int((probabilities.argmax(-1) != labels).sum())
        loss -= float(probabilities.gather(-1, labels.unsqueeze(-1)).clamp_min(1e-12).log().sum())
    model.train()
    return wrong / len(y), loss / len(y)


def train(name: str, options: Settings, data: tuple[Tensor, ...]) -> dict[str, Any]:
    """Test scores at checkpoints, whose processor seconds grow by a factor."""
    x, y, x_test, y_test = data
    make(name, options, x).loss(x[:10], y[:10], 10).backward()  # what only the first call takes
    start = time.process_time()
    model = make(name, options, x)
    optimizer = torch.optim.Adam(model.parameters(), lr=options.rate)
    spent, step, points = time.process_time() - start, 0, []
    checkpoints = [options.seconds * 2.0**-power for power in range(4, -1, -1)]
    while checkpoints:
        start = time.process_time()
        if step % math.ceil(len(x) / BATCH) == 0:
            batches = torch.randperm(len(x)).split(BATCH)
        rows = batches[step % len(batches)]
        optimizer.zero_grad()
        model.loss(x[rows], y[rows], len(x)).backward()
        optimizer.step()
        step += 1
        spent += time.process_time() - start
        if spent >= checkpoints[0]:
            checkpoints = [seconds for seconds in checkpoints if seconds > spent]
            error, mnll = test_scores(model, x_test, y_test)
            points.append({"seconds": spent, "steps": step, "error": error, "mnll": mnll})
    return {"points": points}


def draw(result: dict[str, Any], out: Any) -> None:
    """Error and MNLL against seconds."""
    from matplotlib.ticker import LogLocator, NullFormatter, StrMethodFormatter

    figure, (axes,) = plots.figure(1, 2, width=4.2, height=3.4)
    measures: dict[str, Callable[[dict[str, float]], float]] = {
        "test error, %": lambda point: 100.0 * point["error"],
        "mean negative log likelihood": lambda point: point["mnll"],
    }
    for (label, value), ax in zip(measures.items(), axes, strict=True):
        for color, (name, cell) in zip(plots.COLORS, result["cells"].items(), strict=False):
            points = cell["points"]
            ax.plot([p["seconds"] for p in points], [value(p) for p in points], marker="o", color=color, label=name)
        ax.set(xscale="log", yscale="log", xlabel="processor seconds of training", ylabel=label)
        for axis in (ax.xaxis, ax.yaxis):
            axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            axis.set_major_formatter(StrMethodFormatter("{x:g}"))
            axis.set_minor_formatter(NullFormatter())
    axes[0].legend(frameon=False, fontsize="small")
    common.save_figure(figure, out)


def measure(options: Options) -> dict[str, Any]:
    settings = QUICK if options.quick else Settings()
    data = unit_rows("mnist", options)
    cells = [(name, partial(train, name, settings, data)) for name in (*FEATURES, SVGP)]
    return common.run_cells(options, cells, settings=asdict(settings))


def claims(result: dict[str, Any]) -> list[Claim]:
    """Errors after equal time."""
    errors = {name: 100.0 * cell["points"][-1]["error"] for name, cell in result["cells"].items()}
    real, paired, sketch = (errors[name] for name in ("TensorSRHT", "CtR TensorSRHT", "TensorSketch"))
    after = f"after {result['settings']['seconds']:g} s"
    return [
        Claim(
            "TensorSRHT converges much faster than TensorSketch",
            f"{real:.1f} % against {sketch:.1f} % {after}",
            real < sketch,
        ),
        Claim(
            "CtR-TensorSRHT converges faster than TensorSketch",
            f"{paired:.1f} % against {sketch:.1f} % {after}",
            paired < sketch,
        ),
        Claim(
            "CtR-TensorSRHT has lower errors than TensorSRHT",
            f"{paired:.1f} % against {real:.1f} % {after}",
            paired < real,
        ),
    ]


CLAIMS = {"T Fig. 4.7": claims}
