"""Spectral laws of shift-invariant kernels: how their frequencies are drawn, and the kernels they belong to."""

from __future__ import annotations

import abc
import functools
import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import scipy.optimize
import scipy.special
import torch
from torch import Generator, Tensor

from .. import _checks, sampling


class Spectrum(abc.ABC):
    r"""The law of the frequencies w of a kernel of scaled inputs, by Bochner's theorem.

    .. math:: k(x - y) = E[a^2 \exp(\mathrm{i} w^\top (x - y))]

    The amplitude a is 1 for most kernels. What depends on kernel parameters beside a lengthscale is a differentiable
    function of those (``law``) and of fixed base draws.
    """

    is_isotropic: ClassVar[bool] = False
    has_moments: ClassVar[bool] = True
    """Whether the variance of the kernel estimate follows from the kernel at twice the distance."""

    @abc.abstractmethod
    def draw(self, width: int, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        """Base draws for ``width`` independent frequencies of ``dim`` entries, by name: float64, on the CPU."""

    @abc.abstractmethod
    def frequencies(self, draws: dict[str, Tensor], **law: Tensor) -> tuple[Tensor, Tensor | None]:
        """Frequencies (..., D, d), and amplitudes (..., D) where they are not 1, from base draws and parameters."""

    @abc.abstractmethod
    def kernel(self, x: Tensor, y: Tensor, factor: float = 1.0, **law: Tensor) -> Tensor:
        """The kernel of ``factor`` times the difference, (..., N, d) and (..., M, d) to (..., N, M)."""

    def at_zero(self, **law: Tensor) -> Tensor | float:
        """The kernel of a point with itself."""
        return 1.0


class IsotropicSpectrum(Spectrum):
    """A law with a uniform direction: w = radius times direction, so that directions may be made orthogonal."""

    is_isotropic = True

    def draw(self, width: int, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        directions = torch.nn.functional.normalize(sampling.gaussian((width, dim), generator), dim=-1)
        return self.with_directions(directions, dim, generator)

    def with_directions(self, directions: Tensor, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        """Base draws for given unit directions in a space of ``dim`` dimensions."""
        return {"weight": self.radius(len(directions), dim, generator)[:, None] * directions}

    @abc.abstractmethod
    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        """Independent radii (D,) of frequencies in ``dim`` dimensions."""

    def frequencies(self, draws: dict[str, Tensor], **law: Tensor) -> tuple[Tensor, Tensor | None]:
        return draws["weight"], None

    def kernel(self, x: Tensor, y: Tensor, factor: float = 1.0, **law: Tensor) -> Tensor:
        distance = torch.cdist(x, y, compute_mode="donot_use_mm_for_euclid_dist")
        return self.of_distance(factor * distance, **law)

    @abc.abstractmethod
    def of_distance(self, distance: Tensor, **law: Tensor) -> Tensor:
        """The kernel as a function of the distance of scaled inputs."""


@dataclass(frozen=True)
class Gaussian(IsotropicSpectrum):
    r"""Standard normal frequencies, of :math:`k = \exp(-\|x - y\|^2/2)`."""

    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        return sampling.chi(dim, (width,), generator)

    def of_distance(self, distance: Tensor, **law: Tensor) -> Tensor:
        return torch.exp(-0.5 * distance.square())


@dataclass(frozen=True)
class Matern(IsotropicSpectrum):
    r"""Student-t frequencies with 2 nu degrees of freedom, of the Matern kernel with nu = 1/2, 3/2 or 5/2.

    With nu = 1/2 they have no second moment: the gradient of the features in the lengthscale does not converge.
    """

    nu: float = 2.5

    def __post_init__(self) -> None:
        if _checks.number(self.nu) not in (0.5, 1.5, 2.5):
            raise ValueError(f"expected nu 0.5, 1.5 or 2.5, got {self.nu}; choose one of these")

    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        chi = sampling.chi(dim, (width,), generator)
        return chi * math.sqrt(2.0 * self.nu) / sampling.chi(2.0 * self.nu, (width,), generator)

    def of_distance(self, distance: Tensor, **law: Tensor) -> Tensor:
        r = math.sqrt(2.0 * self.nu) * distance
        polynomial = {0.5: torch.ones_like(r), 1.5: 1.0 + r, 2.5: 1.0 + r + r.square() / 3.0}[self.nu]
        return polynomial * torch.exp(-r)


@dataclass(frozen=True)
class RationalQuadratic(IsotropicSpectrum):
    r"""Normal frequencies times the root of a gamma variable, of :math:`k = (1 + \|x - y\|^2/(2 \alpha))^{-\alpha}`.

    :param alpha: the shape, unless ``law`` has another one (...,), which gradients flow through.
    """

    alpha: float = 1.0

    def __post_init__(self) -> None:
        _checks.positive("alpha", self.alpha)

    def with_directions(self, directions: Tensor, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        base = super().with_directions(directions, dim, generator)
        return base | {"uniform": sampling.uniform((len(directions),), generator)}

    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        return sampling.chi(dim, (width,), generator)

    def frequencies(self, draws: dict[str, Tensor], **law: Tensor) -> tuple[Tensor, Tensor | None]:
        alpha = self._alpha(draws["weight"], law)
        root = _GammaRoot.apply(alpha[..., None], draws["uniform"])
        return (root / alpha[..., None].sqrt())[..., None] * draws["weight"], None

    def of_distance(self, distance: Tensor, **law: Tensor) -> Tensor:
        alpha = self._alpha(distance, law)[..., None, None]
        return (1.0 + distance.square() / (2.0 * alpha)) ** -alpha

    def _alpha(self, like: Tensor, law: dict[str, Tensor]) -> Tensor:
        return law["alpha"] if "alpha" in law else like.new_tensor(self.alpha)


@dataclass(frozen=True)
class Laplace(Spectrum):
    r"""Independent Cauchy frequencies, of :math:`k = \exp(-\|x - y\|_1)`.

    They have no mean: the gradient of the features in the lengthscale does not converge.
    """

    def draw(self, width: int, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        return {"weight": torch.tan(math.pi * (sampling.uniform((width, dim), generator) - 0.5))}

    def frequencies(self, draws: dict[str, Tensor], **law: Tensor) -> tuple[Tensor, Tensor | None]:
        return draws["weight"], None

    def kernel(self, x: Tensor, y: Tensor, factor: float = 1.0, **law: Tensor) -> Tensor:
        return torch.exp(-factor * torch.cdist(x, y, p=1.0))


@dataclass(frozen=True)
class HyperbolicSecant(Spectrum):
    r"""Independent frequencies of density sech(pi w), of :math:`k = \prod_k \mathrm{sech}((x_k - y_k)/2)`.

    With x = log(u + c) that is the skewed chi-squared kernel of u > -c.

    Source: B 3.2.2, Eq. 13b, with the logarithm of the errata.
    """

    def draw(self, width: int, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        return {"weight": torch.log(torch.tan(0.5 * math.pi * sampling.uniform((width, dim), generator))) / math.pi}

    def frequencies(self, draws: dict[str, Tensor], **law: Tensor) -> tuple[Tensor, Tensor | None]:
        return draws["weight"], None

    def kernel(self, x: Tensor, y: Tensor, factor: float = 1.0, **law: Tensor) -> Tensor:
        log_cosh = x.new_zeros(*torch.broadcast_shapes(x.shape[:-2], y.shape[:-2]), x.shape[-2], y.shape[-2])
        for k in range(x.shape[-1]):
            half = 0.5 * factor * (x[..., :, None, k] - y[..., None, :, k]).abs()
            log_cosh = log_cosh + half + torch.log1p(torch.exp(-2.0 * half)) - math.log(2.0)
        return torch.exp(-log_cosh)


@dataclass(frozen=True)
class SpectralMixture(Spectrum):
    r"""Normal mixtures in every coordinate, of GPyTorch's SpectralMixtureKernel.

    .. math:: k(\tau) = \prod_k \sum_q c_q \exp(-2 \pi^2 \tau_k^2 v_{qk}^2) \cos(2 \pi \mu_{qk} \tau_k)

    The parameters come with ``law``: weights (..., Q), means and scales (..., Q, d). A component is chosen with
    probability c_q / sum c, independently in every coordinate; gradients in the weights take the logarithm of that
    probability as importance weight.

    :param num_mixtures: Q, the number of components, all of weight 1/Q, mean 1 and scale 1/(2 pi) without ``law``.
    """

    num_mixtures: int = 1

    def __post_init__(self) -> None:
        _checks.positive_integer("num_mixtures", self.num_mixtures)

    def draw(self, width: int, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        return {
            "normal": sampling.gaussian((width, dim), generator),
            "sign": sampling.rademacher((width, dim), generator),
            "uniform": sampling.uniform((width, dim), generator),
        }

    def frequencies(self, draws: dict[str, Tensor], **law: Tensor) -> tuple[Tensor, Tensor | None]:
        weights, means, scales = self._parameters(draws["normal"], law)
        share = weights / weights.sum(-1, keepdim=True)
        width, dim = draws["uniform"].shape
        edges = share.detach().cumsum(-1)[..., :-1].contiguous()
        uniform = draws["uniform"].flatten().expand(*edges.shape[:-1], width * dim).contiguous()
        chosen = torch.searchsorted(edges, uniform, right=True).unflatten(-1, (width, dim))

        def pick(values: Tensor) -> Tensor:
            return values.expand(*values.shape[:-1], dim).gather(-2, chosen)

        frequencies = 2.0 * math.pi * (draws["sign"] * pick(means) + pick(scales) * draws["normal"])
        probability = pick(share[..., None])
        importance = (probability / probability.detach()).prod(-1)
        return frequencies, (weights.sum(-1, keepdim=True) ** dim * importance).sqrt()

    def kernel(self, x: Tensor, y: Tensor, factor: float = 1.0, **law: Tensor) -> Tensor:
        weights, means, scales = self._parameters(x, law)
        result = None
        for k in range(x.shape[-1]):
            difference = factor * (x[..., None, :, None, k] - y[..., None, None, :, k])
            envelope = torch.exp(-2.0 * (math.pi * difference * scales[..., k, None, None]) ** 2)
            wave = torch.cos(2.0 * math.pi * difference * means[..., k, None, None])
            factor_k = (weights[..., None, None] * envelope * wave).sum(-3)
            result = factor_k if result is None else result * factor_k
        if result is None:
            raise ValueError("expected inputs with at least one column, got none; pass non-empty data")
        return result

    def at_zero(self, **law: Tensor) -> Tensor | float:
        if "weights" not in law:
            return 1.0
        return (law["weights"].sum(-1) ** law["means"].shape[-1])[..., None, None]

    def _parameters(self, like: Tensor, law: dict[str, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        if "weights" in law:
            return law["weights"], law["means"], law["scales"]
        ones = like.new_ones(self.num_mixtures, like.shape[-1])
        return ones[:, 0] / self.num_mixtures, ones, ones / (2.0 * math.pi)


@dataclass(frozen=True)
class Periodic(Spectrum):
    r"""Whole numbers with probabilities :math:`e^{-z} I_n(z)`, of :math:`k = \exp(-\sum_k z_k (1 - \cos(x_k - y_k)))`.

    The concentrations z, (..., d) or (..., 1), come with ``law``, and are 1 without. Gradients in them take the
    logarithm of the probability of the number drawn as importance weight.
    """

    def draw(self, width: int, dim: int, generator: Generator | None) -> dict[str, Tensor]:
        return {"uniform": sampling.uniform((width, dim), generator)}

    def frequencies(self, draws: dict[str, Tensor], **law: Tensor) -> tuple[Tensor, Tensor | None]:
        z = self._concentration(draws["uniform"], law)
        largest = float(z.detach().max())
        orders = torch.arange(-1, int(20.0 + 8.0 * math.sqrt(largest) + largest)).to(z)
        orders = torch.cat([-orders[2:].flip(0), orders[1:]])
        probability = ScaledBessel.apply(z.unsqueeze(-1), orders)
        total = probability.detach().double().cumsum(-1)
        edges = (total[..., :-1] / total[..., -1:]).contiguous()
        uniform = draws["uniform"].mT.double().clamp_max(_below_one(draws["uniform"]))
        uniform = uniform.expand(*edges.shape[:-1], -1).contiguous()
        chosen = torch.searchsorted(edges, uniform, right=True)
        log_chosen = probability.gather(-1, chosen).log().sum(-2)
        return orders[chosen].mT, torch.exp(0.5 * (log_chosen - log_chosen.detach()))

    def kernel(self, x: Tensor, y: Tensor, factor: float = 1.0, **law: Tensor) -> Tensor:
        z = self._concentration(x, law)
        exponent = x.new_zeros(())
        for k in range(x.shape[-1]):
            difference = factor * (x[..., :, None, k] - y[..., None, :, k])
            exponent = exponent + z[..., k, None, None] * (1.0 - torch.cos(difference))
        return torch.exp(-exponent)

    def _concentration(self, like: Tensor, law: dict[str, Tensor]) -> Tensor:
        z = law.get("concentration", like.new_ones(1))
        return z.expand(*z.shape[:-1], like.shape[-1])


@dataclass(frozen=True)
class Spherical(IsotropicSpectrum):
    r"""Radii whose kernel is close to a polynomial one, :math:`(1 - \|x - y\|^2/a^2)^p`, at distances from 0 to 2.

    .. math:: \hat k(\tau) = \sum_i c_i \Lambda_d(r_i \tau), \qquad c_i \ge 0, \quad \sum_i c_i = 1

    Every isotropic kernel on :math:`R^d` is such a mixture. Radii lie on a grid, and c is the least-squares fit over
    distances from 0 to 2; :math:`\Lambda_d` is T Eq. 2.5, evaluated as a confluent hypergeometric function.

    :param degree: p.
    :param a: the radius at which the polynomial vanishes, at least 2.
    :param dim: d.
    """

    degree: int
    a: float
    dim: int

    def __post_init__(self) -> None:
        _checks.positive_integer("degree", self.degree)
        _checks.positive_integer("dim", self.dim)
        if not 2.0 <= _checks.number(self.a) < math.inf:
            raise ValueError(f"expected a of at least 2, got {self.a}; a polynomial with a smaller one has no such law")

    def radius(self, width: int, dim: int, generator: Generator | None) -> Tensor:
        radii, shares = self._fit()[:2]
        index = torch.searchsorted(
            torch.as_tensor(shares.cumsum(), device="cpu")[:-1], sampling.uniform((width,), generator)
        )
        return torch.as_tensor(radii, device="cpu")[index]

    def of_distance(self, distance: Tensor, **law: Tensor) -> Tensor:
        values = distance.detach().to("cpu", torch.float64).numpy()
        radii, shares, _ = self._fit()
        total = sum(c * _lambda(self.dim, r * values) for r, c in zip(radii, shares, strict=True))
        return torch.as_tensor(np.asarray(total)).to(distance)

    @property
    def fit_error(self) -> float:
        """The largest difference from the polynomial kernel over distances from 0 to 2."""
        return self._fit()[2]

    def _fit(self) -> tuple[np.ndarray, np.ndarray, float]:
        return _fit_spherical(self.degree, self.a, self.dim)


def _lambda(dim: int, r: Any) -> np.ndarray:
    r"""The mean of :math:`\exp(\mathrm{i} r u_1)` over the unit sphere of ``dim`` dimensions, T Eq. 2.5.

    Above 128 dimensions, where SciPy's function can fail, by four terms of its logarithm, with an error below 1e-5.
    """
    if dim <= 128:
        return scipy.special.hyp0f1(0.5 * dim, -0.25 * np.square(r))
    z, b = np.square(r) / (2.0 * dim), 0.5 * dim
    log = -z - z**2 / (2.0 * (b + 1.0)) - 2.0 * z**3 / (3.0 * (b + 1.0) * (b + 2.0))
    return np.exp(log - z**4 * (5.0 * b + 11.0) / (4.0 * (b + 1.0) ** 2 * (b + 2.0) * (b + 3.0)))


@functools.lru_cache(maxsize=128)
def _fit_spherical(degree: int, a: float, dim: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Radii and shares of the mixture, and its largest error; solved once for every (degree, a, dim)."""
    distance = np.linspace(0.0, 2.0, 401)
    wanted = (1.0 - (distance / a) ** 2) ** degree
    scale = math.sqrt(2.0 * degree * dim) / a
    radii = np.concatenate([[0.0], np.linspace(0.05, 4.0, 160) * scale])
    design = _lambda(dim, distance[:, None] * radii)
    emphasis = 1e3 * math.sqrt(len(distance))
    rows = np.vstack([design, np.full((1, len(radii)), emphasis)])
    shares, _ = scipy.optimize.nnls(rows, np.append(wanted, emphasis))
    keep = shares > 0.0
    radii, shares = radii[keep], shares[keep] / shares.sum()
    error = float(np.abs(design[:, keep] @ shares - wanted).max())
    return radii, shares, error


def _below_one(uniform: Tensor) -> float:
    """The largest number below 1: uniform draws may have been rounded to 1, where quantiles are infinite."""
    return 1.0 - 0.5 * torch.finfo(uniform.dtype).eps


class _GammaRoot(torch.autograd.Function):
    """The root of the quantile function of the gamma law of shape alpha, differentiable in alpha.

    Small quantiles would underflow in single precision; levels may be 1 where they were rounded to that.
    """

    @staticmethod
    def forward(ctx: Any, alpha: Tensor, uniform: Tensor) -> Tensor:
        shape, level = (t.detach().to("cpu", torch.float64).numpy() for t in (alpha, uniform))
        level = np.minimum(level, _below_one(uniform))
        step = 1e-4 * shape
        below, root, above = (np.sqrt(scipy.special.gammaincinv(a, level)) for a in (shape - step, shape, shape + step))
        ctx.save_for_backward(torch.as_tensor((above - below) / (2.0 * step)).to(alpha))
        ctx.shape = alpha.shape
        return torch.as_tensor(np.asarray(root)).to(alpha)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return (gradient * slope).sum_to_size(ctx.shape), None


class ScaledBessel(torch.autograd.Function):
    """Modified Bessel functions exp(-z) I_n(z) of whole orders, (..., 1) and (J,) to (..., J), differentiable in z."""

    @staticmethod
    def forward(ctx: Any, z: Tensor, orders: Tensor) -> Tensor:
        value, n = (t.detach().to("cpu", torch.float64).numpy() for t in (z, orders))
        scaled = scipy.special.ive(np.abs(n), value)
        neighbours = scipy.special.ive(np.abs(n - 1.0), value) + scipy.special.ive(np.abs(n + 1.0), value)
        ctx.save_for_backward(torch.as_tensor(0.5 * neighbours - scaled).to(z))
        ctx.shape = z.shape
        return torch.as_tensor(scaled).to(z)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (slope,) = ctx.saved_tensors
        return (gradient * slope).sum_to_size(ctx.shape), None
