"""How far a posterior is from the exact one: Kullback-Leibler divergences, each direction by its name."""

from __future__ import annotations

import math
from typing import Any, Literal

import gpytorch
import torch
from gpytorch.distributions import MultivariateNormal
from torch import Tensor
from torch.distributions import Normal

from .._support import checks
from ..likelihoods import ComplexNormal, unclamped
from ..likelihoods.noise import has_fixed_noise, output_noise
from ..linalg import cholesky, log_determinant
from .exact import exact_posterior, independent_normal

_NORMAL = (Normal, torch.distributions.MultivariateNormal, ComplexNormal)
Direction = Literal["approximate_from_exact", "exact_from_approximate"]


def kl_divergence(
    p: Normal | MultivariateNormal | ComplexNormal,
    q: Normal | MultivariateNormal | ComplexNormal,
    *,
    joint: bool = False,
) -> Tensor:
    r"""The divergence KL(p, q) of p from q, of marginals (summed over points) or of joint distributions.

    .. math:: KL(p, q) = \tfrac12 \sum_i \Big[\frac{v_p}{v_q} - 1 - \log \frac{v_p}{v_q} +
        \frac{(m_p - m_q)^2}{v_q}\Big]_i

    and twice that for proper complex normals; for improper ones that of real and imaginary parts together.

    :param p: marginals, or a joint normal distribution, event shape (N,).
    :param q: the same, of the same shape.
    :param joint: whether to compare joint distributions, whose covariances must not be singular.
    :returns: the divergence per batch element, shape (...), in float64.
    :raises ValueError: for other shapes or kinds of distributions, or a variance that is not positive.

    Source: T B.3.5 with the errata (the printed Eq. B.23 is not a divergence).

    >>> p, q = Normal(torch.zeros(1), torch.ones(1)), Normal(torch.ones(1), torch.ones(1))
    >>> kl_divergence(p, q)
    tensor(0.5000, dtype=torch.float64)
    """
    checks.flag("joint", joint)
    for name, distribution in (("p", p), ("q", q)):
        checks.instance(name, distribution, _NORMAL, "a normal distribution", "such as model.posterior(x)")
    if p.mean.shape != q.mean.shape:
        raise ValueError(
            f"expected distributions of one shape, got {tuple(p.mean.shape)} and {tuple(q.mean.shape)}; "
            "compare them at the same points"
        )
    if p.mean.is_complex() != q.mean.is_complex():
        kinds = ["complex" if d.mean.is_complex() else "real" for d in (p, q)]
        raise ValueError(
            f"expected two real or two complex distributions, got a {kinds[0]} p and a {kinds[1]} q; a real one has no "
            "density in the complex plane, so compare distributions of the real parts"
        )
    factor = 1.0 if isinstance(p, ComplexNormal) else 0.5
    difference = _exact(p.mean - q.mean)
    is_improper = any(isinstance(part, ComplexNormal) and not part.is_proper for part in (p, q))
    if joint and is_improper:
        return torch.distributions.kl_divergence(*(_in_double(part) for part in (p, q)))
    if joint:
        factor_p, factor_q = cholesky(_exact(_covariance(p))), cholesky(_exact(_covariance(q)))
        both = torch.cat([factor_p, difference.unsqueeze(-1)], dim=-1)
        white = torch.linalg.solve_triangular(factor_q, both, upper=False).abs().square().sum((-2, -1))
        return factor * (white - difference.shape[-1] + log_determinant(factor_q) - log_determinant(factor_p))
    variance_p, variance_q = unclamped(p).variance.double(), unclamped(q).variance.double()
    for name, variance in (("p", variance_p), ("q", variance_q)):
        if not bool((variance > 0).all()):
            raise ValueError(
                f"expected positive variances in {name}, got a smallest one of {float(variance.min()):g}; "
                "compare noisy predictives"
            )
    if is_improper:
        complex_parts: tuple[Any, Any] = p, q
        pseudo_p, pseudo_q = (_exact(part.pseudo_variance) for part in complex_parts)
        return _improper_divergence(difference, variance_p, pseudo_p, variance_q, pseudo_q).sum(-1)
    ratio = variance_p / variance_q
    return factor * (ratio - 1.0 - ratio.log() + difference.abs().square() / variance_q).sum(-1)


def _improper_divergence(difference: Tensor, v_p: Tensor, pseudo_p: Tensor, v_q: Tensor, pseudo_q: Tensor) -> Tensor:
    """The divergence of complex marginals with pseudo-variances, as normals of real and imaginary part."""
    gap_p, gap_q = (v.square() - pseudo.abs().square() for v, pseudo in ((v_p, pseudo_p), (v_q, pseudo_q)))
    for name, gap in (("p", gap_p), ("q", gap_q)):
        if not bool((gap > 0).all()):
            raise ValueError(f"expected pseudo-variances below the variances in {name}, got others; compare noisy ones")
    spread = v_q * (v_p + difference.abs().square()) - (pseudo_q.conj() * (pseudo_p + difference.square())).real
    return spread / gap_q - 1.0 + 0.5 * (gap_q.log() - gap_p.log())


def _in_double(distribution: Any) -> ComplexNormal:
    """A complex normal in double precision."""
    pseudo = None if distribution.is_proper else _exact(distribution.pseudo_covariance)
    return ComplexNormal(_exact(distribution.mean), _exact(distribution.covariance_matrix), pseudo_covariance=pseudo)


def kl_to_exact(
    model: Any,
    x: Tensor,
    *,
    direction: Direction = "approximate_from_exact",
    noisy: bool = False,
    train_inputs: Tensor | None = None,
    train_targets: Tensor | None = None,
    train_noise: Tensor | None = None,
) -> Tensor:
    """The divergence between the marginals of a model's posterior and of the exact one, summed over inputs.

    "approximate_from_exact" is KL(approximate, exact), as in the thesis; "exact_from_approximate" is
    KL(exact, approximate), from which :func:`kl_reading` tells what coverage to expect.

    :param model: a fitted :class:`rfgp.models.WeightSpaceGP`, or an ExactGP with an approximated kernel.
    :param x: the inputs at which posteriors are compared, (M, d).
    :param noisy: whether to add the noise variance to both, for likelihoods with one noise variance.
    :param train_inputs: the training inputs, where the model does not keep them (``keep_data=True`` does).
    :param train_targets: the training targets, likewise.
    :param train_noise: their noise variances, for a fixed-noise likelihood that does not know these rows.
    :returns: a float64 scalar, averaged over classes for a Dirichlet likelihood, summed over several outputs.
    :raises ValueError: where the exact posterior would not fit in memory, or the model has no training data.

    Source: T B.3.5 with the errata.

    >>> import rfgp
    >>> x, likelihood = torch.rand(20, 2), gpytorch.likelihoods.GaussianLikelihood()
    >>> kernel = rfgp.approximate(gpytorch.kernels.LinearKernel(), num_features=2, input_dim=2)
    >>> model = rfgp.models.WeightSpaceGP(kernel, likelihood, keep_data=True).condition(x, x.sum(-1))
    >>> bool(kl_to_exact(model, x).abs() < 1e-3)  # linear features are exact
    True
    """
    x, train_inputs = checks.columns(x), checks.columns(train_inputs)
    checks.choice("direction", direction, ("approximate_from_exact", "exact_from_approximate"))
    checks.flag("noisy", noisy)
    with torch.no_grad():
        train = training_data(model, train_inputs, train_targets, train_noise)
        approximate, exact = latent_marginals(model, x, *train)
        likelihood = model.likelihood
        has_classes = isinstance(likelihood, gpytorch.likelihoods.DirichletClassificationLikelihood)
        if noisy:
            gaussian = gpytorch.likelihoods.GaussianLikelihood | gpytorch.likelihoods.MultitaskGaussianLikelihood
            if not isinstance(likelihood, gaussian):
                raise ValueError(
                    f"expected a likelihood with one noise variance for noisy=True, got {type(likelihood).__name__}; "
                    "compare the latent functions"
                )
            noises = output_noise(likelihood), getattr(likelihood, "pseudo_noise", None)
            approximate, exact = (plus_noise(d, *noises) for d in (approximate, exact))
        pair = (approximate, exact) if direction == "approximate_from_exact" else (exact, approximate)
        divergences = kl_divergence(*pair)
        return divergences.mean() if has_classes else divergences.sum()


def latent_marginals(
    model: Any, x: Tensor, train_inputs: Tensor, train_targets: Tensor, noise: Tensor | None
) -> tuple[Normal | ComplexNormal, Normal | ComplexNormal]:
    """The marginals of the latent function given the same rows, approximate and exact, in float64."""
    mean = getattr(model, "mean_module", None)
    exact = exact_posterior(model.covar_module, model.likelihood, train_inputs, train_targets, x, mean, noise)
    return posterior_marginals(model, x), exact


def posterior_marginals(model: Any, x: Tensor) -> Normal | ComplexNormal:
    """The marginals of the latent function of a model, with true variances, in float64."""
    latent = unclamped(model.posterior(x) if hasattr(model, "posterior") else model.eval()(x))
    is_improper = isinstance(latent, ComplexNormal) and not latent.is_proper
    pseudo = _exact(latent.pseudo_variance) if is_improper else None
    return independent_normal(_exact(latent.mean), latent.variance.double(), pseudo)


def kl_per_point(p: Normal, q: Normal) -> float:
    """KL(p, q) per marginal, of all points, outputs and classes; infinite where a variance has vanished."""
    if not bool((p.stddev > 0).all() and (q.stddev > 0).all()):
        return math.inf
    return float(kl_divergence(p, q).sum()) / p.mean.numel()


def plus_noise(
    distribution: Normal | ComplexNormal, noise: Tensor, pseudo_noise: Tensor | None = None
) -> Normal | ComplexNormal:
    """The marginals of noisy observations."""
    if isinstance(distribution, ComplexNormal):
        is_circular = pseudo_noise is None or not bool((pseudo_noise != 0).any())
        return distribution.plus_noise(noise, None if is_circular else pseudo_noise)
    return independent_normal(distribution.mean, distribution.variance + noise)


def training_data(
    model: Any, x: Tensor | None, y: Tensor | None, noise: Tensor | None
) -> tuple[Tensor, Tensor, Tensor | None]:
    """The training rows of a model: those that are given, or those that it keeps; raise where there are none."""
    if not hasattr(model, "covar_module") or not hasattr(model, "likelihood") or isinstance(model, type):
        got = model.__name__ if isinstance(model, type) else type(model).__name__
        raise ValueError(f"expected a WeightSpaceGP or an ExactGP for model, got {got}; pass a fitted model")
    if (x is None) != (y is None):
        given, missing = ("train_inputs", "train_targets") if y is None else ("train_targets", "train_inputs")
        raise ValueError(f"expected both train_inputs and train_targets, got {given} alone; pass {missing} too")
    if x is not None and y is not None:
        checks.inputs(checks.columns(x), name="train_inputs")
        checks.tensor(y, "train_targets")
        has_labels = isinstance(model.likelihood, gpytorch.likelihoods.DirichletClassificationLikelihood)
        needs_noise = has_fixed_noise(model.likelihood) and not has_labels
        if noise is None and needs_noise and not _knows_noise(model, y):
            raise ValueError(f"expected the noise of the {len(y)} training rows, got none; pass train_noise=")
        return x, y, noise
    if hasattr(model, "train_targets") and model.train_targets is not None:
        labels = getattr(model.likelihood, "targets", None)
        return model.train_inputs[0], model.train_targets if labels is None else labels, None
    parts = getattr(model, "training_data", [])
    if not parts:
        raise ValueError(
            "expected the training data for the exact posterior, got a model without them; pass train_inputs and "
            "train_targets, or make the model with keep_data=True before it is fitted"
        )
    inputs, targets, noises = zip(*parts, strict=True)
    if any(n is not None for n in noises):
        fixed_noise = model.likelihood.noise_covar.noise if has_fixed_noise(model.likelihood) else None
        noises = tuple(fixed_noise if n is None else n for n in noises)
    joined = None if noises[0] is None else torch.cat(noises)
    return torch.cat(inputs), torch.cat(targets), joined


def _knows_noise(model: Any, y: Tensor) -> bool:
    """Whether a likelihood with fixed noise has that of the training rows, which the sums of the model tell."""
    variances = model.likelihood.noise_covar.noise
    if variances.shape != y.shape:
        return False
    statistics = getattr(model, "statistics", None)
    if statistics is None:
        return True
    extra = model.likelihood.second_noise_covar
    total = variances.double() if extra is None else variances.double() + extra.noise.double()
    log_noise = total.log()[~torch.isnan(y)].sum().to(statistics.log_noise)
    return bool(torch.isclose(log_noise, statistics.log_noise.sum(), rtol=1e-6, atol=1e-6 * y.numel()))


def _covariance(distribution: Any) -> Tensor:
    if isinstance(distribution, Normal):
        return torch.diag_embed(distribution.variance)
    return distribution.covariance_matrix


def _exact(value: Tensor) -> Tensor:
    return value.to(torch.complex128 if value.is_complex() else torch.float64)
