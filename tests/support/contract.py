"""The registry of kernels, likelihoods and settings of WeightSpaceGP, with the dense law that each model stands for.

A :class:`Model` is one combination. It is refused, with the sentence that ``refusal`` names, or keeps every contract of
``tests/contract``. What is new gets a line here.
"""

from __future__ import annotations

import copy
import functools
import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import gpytorch
import torch
from gpytorch.kernels import LCMKernel, MaternKernel, MultitaskKernel, PolynomialKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from gpytorch.means import ConstantMean, MultitaskMean
from joint_normal import JointNormal
from torch import Tensor

import rfgp
from rfgp.kernels import CurlFreeKernel
from rfgp.likelihoods import DirichletClassificationLikelihood, MultitaskFixedNoiseGaussianLikelihood
from rfgp.models import WeightSpaceGP

CLUSTERS, IN_CLUSTER, TASKS, CLASSES = 4, 6, 2, 3
ROWS = CLUSTERS * IN_CLUSTER


@dataclass(frozen=True)
class KernelCase:
    """A kernel with features.

    :param make: the exact kernel of inputs with two columns.
    :param method: how it is approximated, by ``width`` features.
    :param residual: what the features leave over: nothing, a "variance" of every point, or a "covariance" of points.
    :param outputs: its number of outputs.
    :param columns: the number of input columns that it takes.
    """

    make: Callable[[], gpytorch.kernels.Kernel]
    method: str
    width: int
    residual: str = ""
    outputs: int = 1
    columns: int = 2
    is_grid: bool = False

    def approximated(self, x: Tensor) -> gpytorch.kernels.Kernel:
        exact = self.make().to(x)
        with torch.no_grad():
            for i, (name, parameter) in enumerate(sorted(exact.named_parameters())):
                if name.endswith(("covar_factor", "raw_var")):
                    parameter.copy_(0.5 + 0.3 * torch.arange(parameter.numel()).reshape(parameter.shape) - 0.2 * i)
        return rfgp.approximate(exact, self.width, method=self.method, train_inputs=x, seed=0)


def _scaled(kernel: gpytorch.kernels.Kernel, lengthscale: float | None = None) -> ScaleKernel:
    if lengthscale is not None:
        kernel.lengthscale = lengthscale
    kernel = ScaleKernel(kernel)
    kernel.outputscale = 1.7
    return kernel


def _tasks(kernel: gpytorch.kernels.Kernel) -> MultitaskKernel:
    return MultitaskKernel(kernel, num_tasks=TASKS, rank=1)


def _with_lengthscale(kernel: gpytorch.kernels.Kernel, lengthscale: float) -> gpytorch.kernels.Kernel:
    kernel.lengthscale = lengthscale
    return kernel


def _coregionalized() -> LCMKernel:
    parts = [_with_lengthscale(MaternKernel(nu=0.5), 0.7), _with_lengthscale(RBFKernel(), 0.5)]
    return LCMKernel(parts, num_tasks=TASKS, rank=1)


KERNELS = {
    "sketch": KernelCase(lambda: _scaled(PolynomialKernel(power=2)), "tensor_srht", 12),
    "fourier": KernelCase(lambda: _scaled(RBFKernel(), 0.6), "fourier", 12),
    "truncated": KernelCase(lambda: _scaled(RBFKernel(), 1.5), "optimized_maclaurin:real", 12, "variance"),
    "landmarks": KernelCase(lambda: _scaled(MaternKernel(nu=0.5), 0.7), "landmarks", 5, "covariance"),
    "grid": KernelCase(
        lambda: _scaled(MaternKernel(nu=1.5), 0.3), "fourier_grid", 11, "variance", columns=1, is_grid=True
    ),
    "tasks, sketch": KernelCase(lambda: _tasks(PolynomialKernel(power=2)), "tensor_srht", 12, outputs=TASKS),
    "tasks, landmarks": KernelCase(
        lambda: _tasks(_scaled(MaternKernel(nu=0.5), 0.7)), "landmarks", 5, "covariance", TASKS
    ),
    "tasks, grid": KernelCase(
        lambda: _tasks(_scaled(MaternKernel(nu=1.5), 0.3)), "fourier_grid", 11, "variance", TASKS, 1, True
    ),
    "coregionalized, landmarks": KernelCase(_coregionalized, "landmarks", 5, "covariance", TASKS),
    "field": KernelCase(lambda: ScaleKernel(CurlFreeKernel(RBFKernel())), "auto", 12, outputs=2),
}


@dataclass(frozen=True)
class Likelihood:
    """A likelihood of one or several outputs, or of class labels.

    :param make: takes the known noise variances of the rows, of the shape of the targets.
    :param noise: the covariance of the noise of a row (N, T, T) from the likelihood and the known variances.
    """

    make: Callable[[Tensor], gpytorch.likelihoods.Likelihood]
    noise: Callable[[gpytorch.likelihoods.Likelihood, Tensor], Tensor] = lambda likelihood, known: known
    has_tasks: bool = False
    is_known: bool = False
    has_labels: bool = False


def _gaussian(known: Tensor) -> GaussianLikelihood:
    likelihood = GaussianLikelihood().to(known)
    likelihood.noise = 0.07
    return likelihood


def _per_task(known: Tensor, rank: int = 0) -> MultitaskGaussianLikelihood:
    likelihood = MultitaskGaussianLikelihood(TASKS, rank=rank).to(known)
    likelihood.noise = 0.03
    if rank:
        likelihood.task_noise_covar_factor.data = torch.tensor([[0.3, 0.0], [0.2, 0.15]]).to(known)
    else:
        likelihood.task_noises = torch.tensor([0.05, 0.1]).to(known)
    return likelihood


def _learned(known: Tensor) -> FixedNoiseGaussianLikelihood:
    likelihood = FixedNoiseGaussianLikelihood(known, learn_additional_noise=True).to(known)
    likelihood.second_noise = 0.05
    return likelihood


LIKELIHOODS = {
    "gaussian": Likelihood(_gaussian, lambda own, known: own.noise.reshape(1, 1).expand(len(known), 1, 1)),
    "known": Likelihood(FixedNoiseGaussianLikelihood, lambda own, known: known.reshape(-1, 1, 1), is_known=True),
    "known and learned": Likelihood(
        _learned, lambda own, known: known.reshape(-1, 1, 1) + own.second_noise, is_known=True
    ),
    "labels": Likelihood(
        lambda known: DirichletClassificationLikelihood(num_classes=CLASSES, dtype=known.dtype), has_labels=True
    ),
    "per task": Likelihood(
        _per_task,
        lambda own, known: (own.task_noises + own.noise).diag().expand(len(known), TASKS, TASKS),
        has_tasks=True,
    ),
    "correlated": Likelihood(
        functools.partial(_per_task, rank=TASKS),
        lambda own, known: (own.task_noise_covar + own.noise * torch.eye(TASKS).to(known)).expand(len(known), -1, -1),
        has_tasks=True,
    ),
    "known by task": Likelihood(
        MultitaskFixedNoiseGaussianLikelihood, lambda own, known: known.diag_embed(), has_tasks=True, is_known=True
    ),
}
SETTINGS: dict[str, dict[str, object]] = {
    "plain": {},
    "vfe": {"residual": "vfe"},
    "fitc": {"residual": "fitc"},
    "draws": {"num_draws": 3},
    "blocks": {"block_size": IN_CLUSTER, "num_neighbors": None},
    "neighbors": {"block_size": ROWS * TASKS, "num_neighbors": ROWS * TASKS},
}
"""One block with all rows as neighbors is the exact process, by the formulas of neighbors."""
LOCAL = ("blocks", "neighbors")
DATA = ("complete", "missing", "weights")


@dataclass(frozen=True)
class Model:
    """One combination of kernel, likelihood, settings and data, by their names."""

    kernel: str
    likelihood: str
    settings: str
    data: str
    dtype: torch.dtype = field(default=torch.float64, repr=False)

    def __str__(self) -> str:
        return f"{self.kernel} / {self.likelihood} / {self.settings} / {self.data}"

    @property
    def parts(self) -> tuple[str, ...]:
        """Of which every one is in a case that is always run."""
        return f"kernel {self.kernel}", self.likelihood, self.settings, self.data

    @property
    def case(self) -> KernelCase:
        return KERNELS[self.kernel]

    @property
    def noise_case(self) -> Likelihood:
        return LIKELIHOODS[self.likelihood]

    @property
    def outputs(self) -> int:
        return self.case.outputs

    @property
    def refusal(self) -> str | None:
        """The beginning of the sentence that refuses this combination; None where it is a model."""
        has_blocks, has_residual = self.settings in LOCAL, self.settings in ("vfe", "fitc")
        if has_blocks and self.case.residual != "covariance":
            return "expected landmarks for block_size"
        if has_residual and (self.outputs > 1 or self.noise_case.has_labels):
            return "expected one output with Gaussian or fixed noise for residual"
        if has_residual and not self.case.residual:
            return "expected features that leave variance over"
        if self.settings == "draws" and (self.case.residual == "covariance" or self.case.is_grid):
            return "expected random features for num_draws"
        return None

    @property
    def has_cells(self) -> bool:
        """Whether blocks count observed cells of the outputs, and not rows: where the outputs cannot be separated."""
        is_separable = self.kernel != "coregionalized, landmarks" and self.likelihood != "known by task"
        return self.settings == "blocks" and self.outputs > 1 and not (is_separable and self.data != "missing")

    # The problem

    def inputs(self) -> tuple[Tensor, Tensor]:
        """Rows in clusters along the first column, which are the blocks of the models that have blocks, and points."""
        generator = torch.Generator().manual_seed(1)
        numbers = torch.arange(ROWS) % CLUSTERS
        x = torch.rand(ROWS, self.case.columns, generator=generator, dtype=torch.float64)
        xs = torch.rand(2 * CLUSTERS, self.case.columns, generator=generator, dtype=torch.float64)
        last = torch.arange(ROWS) % (ROWS // 2) < CLUSTERS
        x[last, 0] = 1.0  # where blocks end, of the first half of the rows too
        for points, clusters in ((x, numbers), (xs, torch.arange(2 * CLUSTERS) % CLUSTERS)):
            points[:, 0] = 0.9 * points[:, 0] + clusters
        size = 0.5 if self.kernel == "truncated" else 1.0
        return (size * x).to(self.dtype), (size * xs).to(self.dtype)

    def targets(self, x: Tensor) -> Tensor:
        """The targets of rows: (N,), (N, T) or integer labels."""
        generator = torch.Generator().manual_seed(2)
        waves = torch.stack([torch.sin(3.0 * x.sum(-1)), torch.cos(2.0 * x[:, 0])], dim=-1)
        y = waves + 0.3 * torch.randn(waves.shape, generator=generator, dtype=torch.float64).to(x)
        if self.noise_case.has_labels:
            return torch.bucketize(y[:, 0].contiguous(), torch.tensor([-0.5, 0.5]).to(x))
        if self.data == "missing":
            y[torch.rand(y.shape, generator=generator, dtype=torch.float64) < 0.25] = math.nan
        return y if self.outputs > 1 else y[:, 0]

    def weights(self) -> Tensor | None:
        generator = torch.Generator().manual_seed(3)
        weights = 0.3 + 2.0 * torch.rand(ROWS, generator=generator, dtype=torch.float64)
        return weights.to(self.dtype) if self.data == "weights" else None

    def known(self) -> Tensor:
        """Known noise variances, of the shape of the targets."""
        generator = torch.Generator().manual_seed(4)
        shape = (ROWS, self.outputs) if self.outputs > 1 else (ROWS,)
        return (0.02 + 0.1 * torch.rand(shape, generator=generator, dtype=torch.float64)).to(self.dtype)

    def rows(self) -> tuple[Tensor, Tensor, dict[str, Tensor]]:
        """What ``condition`` takes."""
        x, _ = self.inputs()
        given = {"noise": self.known()} if self.noise_case.is_known else {}
        weights = self.weights()
        return x, self.targets(x), given if weights is None else given | {"weights": weights}

    def unfitted(self) -> WeightSpaceGP:
        """A model without rows."""
        x, _ = self.inputs()
        mean = ConstantMean()
        mean.constant = 0.3
        mean = MultitaskMean(mean, num_tasks=self.outputs) if self.outputs > 1 else mean
        likelihood = self.noise_case.make(self.known())
        kernel = approximated(self.kernel, self.dtype)
        settings = dict(SETTINGS[self.settings])
        if self.has_cells:
            settings["block_size"] = IN_CLUSTER * self.outputs
        return WeightSpaceGP(kernel, likelihood, mean.to(x), **settings)

    def fitted(self) -> WeightSpaceGP:
        """A model of all rows."""
        x, y, given = self.rows()
        return self.unfitted().condition(x, y, **given)

    # The law that it stands for

    def evidence(self, model: WeightSpaceGP) -> Tensor:
        """The log evidence by dense algebra, or the bound of it; its mean over the draws of the features."""
        x, _ = self.inputs()
        draws = [sum(law.evidence() for law in self.dense(draw, x, x[:0])) for draw in draws_of(model)]
        return torch.stack(draws).mean() - self.bound(model, x)

    def moments(
        self, model: WeightSpaceGP, xs: Tensor, kept: Tensor | None = None, of_draws: bool = False
    ) -> tuple[Tensor, Tensor]:
        """Means (L, m T) and covariances (L, m T, m T) at points by dense algebra: of draws the mixture's."""
        means, covariances = self.moments_of_draws(model, xs, kept, of_draws)
        about = (means - means.mean(0)).unsqueeze(-1)
        return means.mean(0), (covariances + about @ about.mT).mean(0)

    def moments_of_draws(
        self, model: WeightSpaceGP, xs: Tensor, kept: Tensor | None = None, of_draws: bool = False
    ) -> tuple[Tensor, Tensor]:
        """The same of every draw of the features, (J, L, m T) and (J, L, m T, m T)."""
        x, _ = self.inputs()
        pairs = [[law.posterior() for law in self.dense(draw, x, xs, kept, of_draws)] for draw in draws_of(model)]
        means, covariances = (torch.stack([torch.stack([law[i] for law in laws]) for laws in pairs]) for i in (0, 1))
        return means.detach(), covariances.detach()

    def dense(
        self, model: WeightSpaceGP, x: Tensor, xs: Tensor, kept: Tensor | None = None, of_draws: bool = False
    ) -> list[JointNormal]:
        """The law of the cells of some rows, and of points: one, or one for each class.

        :param kept: which rows are there, (N,); default: all.
        :param of_draws: whether points have what functions have that are drawn.
        """
        kept = torch.arange(len(x)) if kept is None else kept
        every = torch.cat([x[kept], xs])
        prior = self.prior(model, every, len(kept), of_draws)
        mean = model.mean_module(every).flatten()
        weights = self.weights()
        divisor = torch.ones(len(x)).to(x) if weights is None else weights
        y, known = self.targets(x)[kept], self.known()[kept]
        if self.noise_case.has_labels:
            stated = gpytorch.likelihoods.DirichletClassificationLikelihood(
                y, model.likelihood.alpha_epsilon, dtype=x.dtype
            )
            variances = stated.noise_covar.noise / divisor[kept]
            pairs = zip(variances, stated.transformed_targets, strict=True)
            return [JointNormal(prior, mean, noise.diag(), targets) for noise, targets in pairs]
        noise = self.noise_case.noise(model.likelihood, known) / divisor[kept].reshape(-1, 1, 1)
        return [JointNormal(prior, mean, torch.block_diag(*noise), y.flatten())]

    def prior(self, model: WeightSpaceGP, every: Tensor, num_rows: int, of_draws: bool = False) -> Tensor:
        """Features' products, and what these leave over: among cells of one block, one row, or one point."""
        kernel = model.covar_module
        features = kernel.features(every)
        low_rank = features @ features.mT
        if not self.case.residual:
            return low_rank
        owners = torch.arange(len(every))
        if self.settings in LOCAL:
            owners = every[:, 0].floor().long() if self.settings == "blocks" else torch.zeros_like(owners)
        elif self.settings == "vfe" or (self.settings != "fitc" and not self.case.is_grid):
            owners[:num_rows] = -1 - owners[:num_rows]
        if of_draws and self.settings not in LOCAL:
            owners[num_rows:] = -1 - owners[num_rows:]
        is_own = (owners[:, None] == owners) & (owners >= 0)
        is_own = is_own.repeat_interleave(self.outputs, 0).repeat_interleave(self.outputs, 1)
        lacking = kernel.exact_kernel(every).to_dense() - low_rank
        if self.kernel == "truncated":  # a draw of whose series may have more than the kernel
            lacking = lacking.diagonal().clamp_min(0.0).diag()
        return low_rank + is_own * lacking

    def bound(self, model: WeightSpaceGP, x: Tensor) -> Tensor:
        """What the variational bound takes from the evidence: half the residual variances over the noise."""
        if self.settings != "vfe":
            return torch.zeros(()).to(x)
        missing = (self.prior(model, x, 0) - self.prior(model, x, len(x))).diagonal()
        noise = torch.cat([law.noise.diagonal() for law in self.dense(model, x, x[:0])])
        return 0.5 * (missing / noise).sum()


def draws_of(model: WeightSpaceGP) -> tuple[WeightSpaceGP, ...]:
    """Models of the single draws of the features of a model, which share its parameters."""
    return model, *model.further_draws.of(model)


def approximated(name: str, dtype: torch.dtype) -> gpytorch.kernels.Kernel:
    """The kernel of a name at the rows of its models."""
    return copy.deepcopy(_approximated(name, dtype, torch.get_default_dtype()))


@functools.cache
def _approximated(name: str, dtype: torch.dtype, default: torch.dtype) -> gpytorch.kernels.Kernel:
    return KERNELS[name].approximated(Model(name, "gaussian", "plain", "complete", dtype).inputs()[0])


def every_combination() -> Iterator[Model]:
    """All combinations whose parts go together by their shapes."""
    for names in itertools.product(KERNELS, LIKELIHOODS, SETTINGS, DATA):
        model = Model(*names)
        suits = model.noise_case.has_tasks == (model.outputs > 1)
        if suits and not (model.data == "missing" and model.outputs == 1):
            yield model


ALL = tuple(every_combination())
MODELS = tuple(model for model in ALL if model.refusal is None)
REFUSED = tuple(model for model in ALL if model.refusal is not None)
