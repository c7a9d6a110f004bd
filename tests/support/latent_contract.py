"""The registry of models of latent functions, with the law that each stands for by dense algebra.

A :class:`Latent` is a LaplaceGP, a WeightSpaceVariationalGP or a HeteroscedasticGP with a kernel, a likelihood and
settings. It keeps every contract, or ``refusals`` has the sentence. What is new gets a line here.
"""

from __future__ import annotations

import abc
import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

import dense_laplace
import gpytorch
import numpy as np
import torch
from contract import KERNELS, LOCAL, SETTINGS, TASKS, Model, approximated
from gpytorch.likelihoods import GaussianLikelihood, Likelihood, SoftmaxLikelihood
from gpytorch.means import ConstantMean, MultitaskMean
from joint_normal import JointNormal
from torch import Tensor
from torch.distributions import Normal, Poisson, StudentT

from rfgp.likelihoods import PoissonLikelihood, SeveralFunctionsLikelihood
from rfgp.models import HeteroscedasticGP, LaplaceGP, WeightSpaceVariationalGP
from rfgp.training.heteroscedastic import NoiseObjective

CONTRACTS = {
    "moments": "means, variances, and covariances between points and functions, the residual variance in them once",
    "draws": "moments of draws",
    "evidence": "the evidence or its bound",
    "gradient": "its gradients, and that the best distribution of the weights has none",
    "update": "rows that come later equal all rows at once",
    "leave out": "rows that are left out equal a refit",
    "weights": "a weight of two is a row twice",
    "states": "copies, states and files",
    "float32": "float32",
    "device": "a device has the values of the processor, and rows without numbers are refused",
}
"""What is tested of every model, by the names of columns."""


class Law(NamedTuple):
    """The evidence or its bound, and moments of F functions at m points, by points: (m F,) and (m F, m F).

    ``error`` is the standard error of a bound that is a mean of draws.
    """

    evidence: Tensor
    mean: Tensor
    covariance: Tensor
    error: float = 0.0


@dataclass(frozen=True)
class Latent(abc.ABC):
    """One combination of kernel, likelihood and settings, by their names."""

    kernel: str
    likelihood: str
    settings: str
    dtype: torch.dtype = field(default=torch.float64, repr=False)

    def __str__(self) -> str:
        return f"{self.kind} / {self.kernel} / {self.likelihood} / {self.settings}"

    @property
    @abc.abstractmethod
    def kind(self) -> str:
        """The name of the model."""

    @property
    def parts(self) -> tuple[str, ...]:
        """Of which every one is in a case that is always run."""
        return tuple(f"{self.kind} {part}" for part in (self.kernel, self.likelihood, self.settings))

    @property
    def refusals(self) -> dict[str, str]:
        """The contracts that it does not keep, each with the beginning of the sentence that refuses it."""
        return {"leave out": "no attribute 'leave_one_out'", "weights": "expected no noise and weights"}

    def data(self) -> Model:
        """The inputs and kernels of the other registry."""
        return Model(self.kernel, "gaussian", "plain", "complete", self.dtype)

    def inputs(self) -> tuple[Tensor, Tensor]:
        return self.data().inputs()

    def mean(self) -> gpytorch.means.Mean:
        mean = ConstantMean()
        mean.constant = 0.2
        return mean.to(self.dtype)

    @abc.abstractmethod
    def targets(self) -> Tensor:
        """The targets of the rows."""

    @abc.abstractmethod
    def unfitted(self) -> Any:
        """A model without rows."""

    @abc.abstractmethod
    def fit(self, model: Any, x: Tensor, y: Tensor) -> Any:
        """The model of these rows."""

    @abc.abstractmethod
    def evidence(self, model: Any, x: Tensor, y: Tensor) -> Tensor:
        """The evidence of a fitted model of these rows, differentiable."""

    @abc.abstractmethod
    def law(self, model: Any) -> Law:
        """What a fitted model stands for, by dense algebra."""

    @property
    def is_best(self) -> bool:
        """Whether a fit ends at the best distribution of the weights."""
        return True

    def fitted(self) -> Any:
        return self.fit(self.unfitted(), self.inputs()[0], self.targets())


# Laplace's approximation


def _counts(y: Tensor) -> Tensor:
    return (3.0 * y.abs()).round()


def _labels(y: Tensor) -> Tensor:
    return torch.bucketize(y.contiguous(), torch.tensor([-0.5, 0.5]).to(y))


LAPLACE: dict[str, Callable[[Tensor], Tensor]] = {
    "probit": lambda y: (y > 0.0).to(y),
    "Poisson": _counts,
    "negative binomial": _counts,
    "Student's t": lambda y: y,
    "softmax": _labels,
    "noisy softmax": _labels,
    "normal of two": lambda y: y,
}


PARAMETERS = {
    "negative binomial": (("dispersion", "dispersion"),),
    "Student's t": (("degrees", "deg_free"), ("noise", "noise")),
    "noisy softmax": (("noise", "noise"), ("scale", "noise_scale")),
}
"""Of likelihoods, as their derivatives and their classes name them."""


class Laplace(Latent):
    """A LaplaceGP: Newton's method with matrices of all rows, and of all functions."""

    kind = "Laplace"

    @property
    def refusals(self) -> dict[str, str]:
        own = {} if self.settings in LOCAL else {"update": "expected a model with blocks for update"}
        return super().refusals | own

    def targets(self) -> Tensor:
        return LAPLACE[self.likelihood](self.data().targets(self.inputs()[0]))

    def unfitted(self) -> LaplaceGP:
        likelihood = dense_laplace.LIKELIHOODS[self.likelihood].make().to(self.dtype)
        return LaplaceGP(approximated(self.kernel, self.dtype), likelihood, self.mean(), **SETTINGS[self.settings])

    def fit(self, model: LaplaceGP, x: Tensor, y: Tensor) -> LaplaceGP:
        return model.condition(x, y)

    def evidence(self, model: LaplaceGP, x: Tensor, y: Tensor) -> Tensor:
        return model.log_marginal_likelihood()

    def law(self, model: LaplaceGP) -> Law:
        x, xs = self.inputs()
        settings = self.settings if self.settings in LOCAL else "vfe"
        with torch.no_grad():
            prior = (
                Model(self.kernel, "gaussian", settings, "complete").prior(model, torch.cat([x, xs]), len(x)).numpy()
            )
            constant = float(model.mean_module.constant)
        count, rows = model.latent.num_functions, len(x)
        parts = prior[:rows, :rows], prior[rows:, :rows], prior[rows:, rows:]
        blocks = [np.kron(np.eye(count), part) for part in parts]
        means = [np.full(count * size, constant) for size in (rows, len(xs))]
        own = {name: float(getattr(model.likelihood, source)) for name, source in PARAMETERS.get(self.likelihood, ())}
        step = partial(dense_laplace.LIKELIHOODS[self.likelihood].derivatives, y=self.targets().numpy(), **own)
        is_expected = isinstance(model.likelihood, SeveralFunctionsLikelihood)
        final = partial(step, is_expected=True) if is_expected else step
        found = dense_laplace.laplace(step, blocks[0], means[0], blocks[1], blocks[2], means[1], final=final)
        order = np.arange(count * len(xs)).reshape(count, len(xs)).T.flatten()
        moments = found.mean[order], found.covariance[order][:, order]
        return Law(torch.tensor(found.evidence), *map(torch.as_tensor, moments))


# Variational inference


def quadrature(log_density: Callable[[Tensor], Tensor], mean: Tensor, variance: Tensor) -> Tensor:
    """The means of log densities of function values (..., K) over normal ones (...), by 20 points."""
    points, weights = (torch.from_numpy(part) for part in np.polynomial.hermite.hermgauss(20))
    values = mean.unsqueeze(-1) + (2.0 * variance).sqrt().unsqueeze(-1) * points
    return (log_density(values) * weights).sum(-1) / math.sqrt(math.pi)


class Variational(NamedTuple):
    """How a likelihood and its targets are made, and the distribution of targets given values of the functions."""

    make: Callable[[], Likelihood]
    targets: Callable[[Tensor], Tensor]
    distribution: Callable[[Any, Tensor], torch.distributions.Distribution]


def _gaussian() -> GaussianLikelihood:
    likelihood = GaussianLikelihood()
    likelihood.noise = 0.07
    return likelihood


VARIATIONAL = {
    "Gaussian": Variational(_gaussian, lambda y: y, lambda own, f: Normal(f, own.noise.sqrt())),
    "Poisson": Variational(PoissonLikelihood, _counts, lambda own, f: Poisson(f.exp())),
    "Student's t": Variational(
        dense_laplace.LIKELIHOODS["Student's t"].make,
        lambda y: y,
        lambda own, f: StudentT(own.deg_free, f, own.noise.sqrt()),
    ),
    "softmax": Variational(
        partial(SoftmaxLikelihood, num_classes=3, mixing_weights=False),
        _labels,
        lambda own, f: torch.distributions.Categorical(logits=f),
    ),
}
DRAWS = 4000
"""Of the functions of several classes, in bounds that have no closed form."""


def _weights(model: WeightSpaceVariationalGP) -> tuple[Tensor, Tensor]:
    """Means (C, D) and covariances (C, D, D) of the weights, differentiable in the parameters that store them."""
    known = model.variational_strategy.variational_distribution
    return known.mean.reshape(-1, known.mean.shape[-1]), known.covariance_matrix.reshape(
        -1, *known.covariance_matrix.shape[-2:]
    )


def _divergence(mean: Tensor, covariance: Tensor) -> Tensor:
    """From N(0, I), summed over sets of weights."""
    trace = covariance.diagonal(dim1=-2, dim2=-1).sum()
    return 0.5 * (trace + mean.square().sum() - mean.numel() - torch.logdet(covariance).sum())


def _functions(model: WeightSpaceVariationalGP, kernel: str, every: Tensor) -> tuple[Tensor, Tensor]:
    """Means (C, n) and covariances (C, n, n) of functions, with what the features of a kernel lack at every point."""
    mean, covariance = _weights(model)
    features, exact = model.covar_module.features(every), model.covar_module.exact_kernel(every).to_dense()
    lacking = (exact - features @ features.mT).diagonal() * float(bool(KERNELS[kernel].residual))
    return mean @ features.mT + model.mean_module(every), features @ covariance @ features.mT + lacking.diag()


def _by_points(covariances: Tensor) -> Tensor:
    """Covariances (C, m, m) of independent functions as one of all of them, point by point, (m C, m C)."""
    count, size, _ = covariances.shape
    blocks = covariances.permute(1, 2, 0).diag_embed().transpose(1, 2)
    return blocks.reshape(count * size, count * size)


class VariationalCase(Latent):
    """A WeightSpaceVariationalGP, whose settings are the forms of the covariance of its weights."""

    kind = "variational"

    @property
    def refusals(self) -> dict[str, str]:
        return super().refusals | {"update": "no attribute 'update'"}

    def targets(self) -> Tensor:
        return VARIATIONAL[self.likelihood].targets(self.data().targets(self.inputs()[0]))

    def unfitted(self) -> WeightSpaceVariationalGP:
        likelihood = VARIATIONAL[self.likelihood].make().to(self.dtype)
        return WeightSpaceVariationalGP(
            approximated(self.kernel, self.dtype), likelihood, self.mean(), covariance=self.settings
        )

    def fit(self, model: WeightSpaceVariationalGP, x: Tensor, y: Tensor) -> WeightSpaceVariationalGP:
        """One step is exact for a Gaussian likelihood; those of a diagonal covariance and of draws end nowhere."""
        torch.manual_seed(0)
        is_exact = self.likelihood == "Gaussian" and self.settings == "full"
        for _ in range(1 if is_exact else 50 if self.is_best else 3):
            model.natural_step(x, y, step_size=1.0 if is_exact else 0.7 if self.is_best else 0.3)
        return model

    @property
    def is_best(self) -> bool:
        """Whether steps lead to the best distribution."""
        return self.settings == "full" and self.likelihood != "softmax"

    def evidence(self, model: WeightSpaceVariationalGP, x: Tensor, y: Tensor) -> Tensor:
        with gpytorch.settings.num_likelihood_samples(DRAWS):
            return model.elbo(x, y)

    def law(self, model: WeightSpaceVariationalGP) -> Law:
        (x, xs), y = self.inputs(), self.targets()
        mean, covariance = _functions(model, self.kernel, torch.cat([x, xs]))
        rows, variance = len(x), covariance.diagonal(dim1=-2, dim2=-1)
        distribution = partial(VARIATIONAL[self.likelihood].distribution, model.likelihood)
        error = 0.0
        if self.likelihood == "softmax":
            draws = mean + variance.sqrt() * torch.randn(DRAWS, *mean.shape)
            sums = distribution(draws[..., :rows].mT).log_prob(y).sum(-1)
            expected, error = sums.mean(), float(sums.std()) * math.sqrt(2.0 / DRAWS)
        else:
            of_values = lambda f: distribution(f).log_prob(y.unsqueeze(-1))  # noqa: E731
            expected = quadrature(of_values, mean[0, :rows], variance[0, :rows]).sum()
        bound = expected - _divergence(*_weights(model))
        return Law(bound, mean[:, rows:].mT.flatten(), _by_points(covariance[:, rows:, rows:]), error)


# Noise that is learned


class Heteroscedastic(Latent):
    """A HeteroscedasticGP; its likelihood is the kernel of its log noise, and settings are the kind of rows."""

    kind = "heteroscedastic"

    @property
    def refusals(self) -> dict[str, str]:
        return super().refusals | {"update": "no attribute 'update'"}

    @property
    def outputs(self) -> int:
        return KERNELS[self.kernel].outputs

    def data(self) -> Model:
        return Model(self.kernel, "gaussian", "plain", self.settings, self.dtype)

    def targets(self) -> Tensor:
        return self.data().targets(self.inputs()[0])

    def unfitted(self) -> HeteroscedasticGP:
        noise, mean = KERNELS[self.likelihood.removesuffix(" noise")].approximated(self.inputs()[0]), self.mean()
        mean = MultitaskMean(mean, num_tasks=TASKS).to(self.dtype) if self.outputs > 1 else mean
        model = HeteroscedasticGP(approximated(self.kernel, self.dtype), noise, mean)
        with torch.no_grad():
            model.log_noise.mean_module.raw_constant.fill_(-2.0)
        return model

    def fit(self, model: HeteroscedasticGP, x: Tensor, y: Tensor) -> HeteroscedasticGP:
        return model.condition(x, y)

    def evidence(self, model: HeteroscedasticGP, x: Tensor, y: Tensor) -> Tensor:
        return NoiseObjective(model, x, y).evidence()

    def log_noise(self, model: HeteroscedasticGP, x: Tensor) -> tuple[Tensor, Tensor]:
        """Means and variances of log noise, (N T,)."""
        mean, covariance = _functions(model.log_noise, self.likelihood.removesuffix(" noise"), x)
        return mean.mT.flatten(), covariance.diagonal(dim1=-2, dim2=-1).mT.flatten()

    def law(self, model: HeteroscedasticGP) -> Law:
        (x, xs), y = self.inputs(), self.targets().flatten()
        mean, variance = self.log_noise(model, x)
        noise, seen = (mean - 0.5 * variance).exp(), ~torch.isnan(y)
        every = torch.cat([x, xs])
        prior = Model(self.kernel, "gaussian", "vfe", self.settings).prior(model, every, len(x))
        joint = JointNormal(prior, model.mean_module(every).flatten(), noise.diag(), y)
        bound = joint.evidence() - 0.25 * variance[seen].sum() - _divergence(*_weights(model.log_noise))
        if self.outputs == 1:
            exact = model.covar_module.exact_kernel(x).to_dense().diagonal()
            bound = bound - 0.5 * ((exact - prior.diagonal()[: len(x)]) / noise)[seen].sum()
        return Law(bound, *joint.posterior())


def _every_case() -> list[Latent]:
    names = itertools.product(LAPLACE, ("plain", *LOCAL))
    cases: list[Latent] = [Laplace("landmarks", name, settings) for name, settings in names]
    cases.remove(Laplace("landmarks", "normal of two", "neighbors"))  # as the other likelihood of several functions
    others = itertools.product(("fourier", "truncated", "grid"), ("Poisson", "noisy softmax"))
    cases += [Laplace(kernel, name, "plain") for kernel, name in others]
    names = itertools.product(("fourier", "truncated", "landmarks", "grid"), VARIATIONAL, ("full", "diagonal"))
    cases += [VariationalCase(*parts) for parts in names]
    for kernel, noise in itertools.product(("fourier", "truncated", "landmarks", "grid"), ("fourier", "landmarks")):
        cases.append(Heteroscedastic(kernel, f"{noise} noise", "complete"))
    for kernel, data in itertools.product(
        ("tasks, sketch", "tasks, landmarks", "tasks, grid", "field"), ("complete", "missing")
    ):
        cases.append(Heteroscedastic(kernel, "fourier noise", data))
    return cases


LATENT = tuple(_every_case())
