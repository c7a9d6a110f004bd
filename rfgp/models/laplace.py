"""Likelihoods that are not Gaussian, by Laplace's approximation in weight space."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, Self

import gpytorch
import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import LinearMean, Mean, MultitaskMean, ZeroMean
from torch import Tensor

from .. import _checks, _state
from ..data.batches import batches
from ..distributions import MultitaskMultivariateNormal, MultivariateNormal
from ..inference import OutputFactor, WeightPosterior, WeightSpaceCovariance, plus_residual
from ..inference.function_posterior import FunctionPosterior
from ..inference.laplace import LaplaceSums, LatentFunctions
from ..inference.latent_terms import latent_likelihood
from ..inference.newton import LaplaceProblem, Precision
from ..inference.products import feature_product
from ..kernels import with_features
from ..kernels.map_holder import maps_kept_on_error
from ..kernels.observation import check_observed_mean
from ..kernels.reference_tensor import reference_tensor
from ..linalg import joined, row_chunks
from ..passes import Shard
from .record import WEIGHTS, Record, WeightsCode
from .snapshot import Snapshots

MAX_WEIGHTS = 8192
"""The largest number of weights of all classes together that a full Hessian is formed for."""
_FITTED, _RECORD = "laplace.", "fitted_with."


class LaplaceGP(torch.nn.Module):
    r"""A Gaussian process with random features and any likelihood, by Laplace's approximation, at O(N D^2) per step.

    .. math:: f(x) = m(x) + \phi(x)^\top w, \quad w \sim N(0, I), \qquad
        B = I + \sum_i W_i \phi_i \phi_i^\top, \qquad w \leftarrow w + t B^{-1} \Big(\sum_i g_i \phi_i - w\Big)

    with the derivatives :math:`g_i = \partial \log p(y_i \mid f_i) / \partial f_i` and
    :math:`W_i = -\partial^2 \log p(y_i \mid f_i) / \partial f_i^2`, by automatic differentiation of the likelihood.
    Each Newton step is one pass over the rows, which are summed as in :class:`WeightSpaceGP` with the weights
    :math:`W_i`, and is shortened by t until the log posterior rises. The posterior is :math:`N(w, B^{-1})` at the mode;
    for a Gaussian likelihood it is exact.

    Where the likelihood is not log-concave (Student's t) some :math:`W_i` are negative. Where they make B indefinite on
    the way, the step leaves them out; at the mode, the posterior and the evidence have them all.

    A SoftmaxLikelihood has Q latent functions on the same features, and

    .. math:: B = I + \sum_i W_i \otimes \phi_i \phi_i^\top, \qquad W_i = \mathrm{diag}(p_i) - p_i p_i^\top

    which costs Q (Q + 1) / 2 Gram matrices a pass, and a Cholesky factor of all Q D weights. With
    ``hessian="block_diagonal"`` posterior and evidence have the diagonal of :math:`W_i` alone, at Q Gram matrices and Q
    Cholesky factors of D weights. The mode is the same: its Newton steps are found by conjugate gradients, whose
    iterations are passes without Gram matrices. The full Hessian is refused above 8,192 weights.

    :param kernel: a scalar kernel made by :func:`rfgp.approximate`, or a GPyTorch ScaleKernel around one, which may
        have a batch shape (Q,) for classes. Complex features enter as real and imaginary parts.
    :param likelihood: a GPyTorch likelihood of one latent function, a GaussianLikelihood, or a SoftmaxLikelihood.
    :param mean: any mean function, for classes with a batch shape (Q,) if wanted; default: ZeroMean.
    :param hessian: "full" or "block_diagonal", for a SoftmaxLikelihood.
    :param product_dtype: the dtype of Gram products; default: float64, or float32 for float32 features where the
        curvature is below a hundredth of the inverse of the largest prior variance. All else is in float64.
    :raises ValueError: for a kernel without features or of several outputs, or another likelihood, mean or
        product_dtype.

    Source: Rasmussen and Williams (2006), Algorithms 3.1 to 3.3 and 5.1, in the weights of features.

    >>> import gpytorch, rfgp
    >>> x = torch.rand(100, 2)
    >>> kernel = rfgp.approximate(gpytorch.kernels.PolynomialKernel(power=2), num_features=16, input_dim=2)
    >>> model = LaplaceGP(kernel, gpytorch.likelihoods.BernoulliLikelihood()).condition(x, x.sum(-1) > 1.0)
    >>> model.likelihood(model.posterior(x[:3])).probs.shape
    torch.Size([3])
    """

    def __init__(
        self,
        kernel: Kernel,
        likelihood: Likelihood,
        mean: Mean | None = None,
        *,
        hessian: str = "full",
        product_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.covar_module = with_features(kernel)
        self.likelihood = likelihood
        self.mean_module = ZeroMean() if mean is None else mean
        self.hessian = hessian
        self.product_dtype = None if product_dtype is None else _checks.product_dtype(product_dtype)
        self._latent = latent_likelihood(likelihood, hessian)
        _check_parts(self.covar_module, self.mean_module, self._latent.num_functions)
        check_observed_mean(self.covar_module, self.mean_module)
        self.num_passes = 0
        """How many times the last fit has summed the Hessian to find the mode, steps that were shortened included."""
        self._fitted: _Fitted | None = None
        self._evidence: Tensor | None = None
        self._posterior: WeightPosterior | FunctionPosterior | None = None
        self._weights_code = WeightsCode()
        self._snapshots = Snapshots()

    def condition(
        self, x: Tensor | Iterable[tuple[Tensor, ...]], y: Tensor | None = None, *, start: Tensor | None = None
    ) -> Self:
        """Find the mode of the weights, and forget earlier data.

        With gradients enabled the evidence carries those of all parameters. A loader then stays in memory until the
        evidence is gone.

        :param x: inputs (N, d), or batches (x, y) that can be gone through again, such as a list or a DataLoader: every
            Newton step goes through all of them once. The memory is free of their number.
        :param y: targets (N,): real ones, counts, zeros and ones, or integer class labels, as the likelihood has them.
        :param start: weights (D, Q) that Newton's method begins with, such as the ``mode`` for other values of the
            parameters; default: zeros.
        :returns: the model.
        :raises ValueError: for bad data, or where there is no mode; the model stays as it was.
        """
        tracks = torch.is_grad_enabled()
        with maps_kept_on_error(self.covar_module), torch.inference_mode(False), torch.set_grad_enabled(tracks):
            rows = _Rows(self, x, y)
            problem = LaplaceProblem(self._functions(), rows)
            self._check_size(rows)
            weights = problem.mode(_checked_start(start, problem.zeros()))
            evidence, sums = problem.log_evidence(weights)
            _checks.finite(evidence.detach(), "the evidence")
        self._fitted = _Fitted(weights, sums.detach(), Record(self._parameter_state()))
        self._evidence, self._posterior, self.num_passes = evidence, None, problem.num_passes
        return self

    def _check_size(self, rows: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Make the maps of the kernel for the first rows, and raise a ValueError where a Hessian would not fit."""
        x, _ = next(iter(rows), (None, None))
        if x is None:
            raise ValueError("expected at least one batch from the loader, got none; check that it is not used up")
        with torch.no_grad():
            self.covar_module.scalar_features(x[:1])
        width, count = self._functions().num_features, self._latent.num_functions
        if self._latent.has_full_hessian and count > 1 and width * count > MAX_WEIGHTS:
            raise ValueError(
                f"expected at most {MAX_WEIGHTS} weights of all classes for a full Hessian, got {count} x {width}; use "
                'hessian="block_diagonal", or fewer features'
            )
        pairs = len(self._latent.pairs)
        what = f"{pairs} Gram matrices of {width} features"
        _checks.fits_in_memory(24.0 * pairs * width**2, what, "use fewer features")

    def _functions(self, kernel: Any = None, mean: Mean | None = None) -> LatentFunctions:
        parts = (self.covar_module, self.mean_module) if kernel is None or mean is None else (kernel, mean)
        return LatentFunctions(*parts, self._latent, self.product_dtype)

    def _known(self) -> _Fitted:
        """What was fitted.

        :raises ValueError: before the first fit, or where parameters or weights have changed since.
        """
        if self._fitted is None:
            raise ValueError("expected a fitted model, got one without data; call condition(x, y) first")
        self._fitted.record.check(self._parameter_state(), "the mode was computed")
        return self._fitted

    def _parameter_state(self) -> dict[str, Tensor]:
        """What the mode depends on, by name."""
        state = {name: parameter.detach() for name, parameter in self.named_parameters()}
        buffers = self.covar_module.named_buffers()
        state |= {name: b for name, b in buffers if name.rpartition(".")[2] in ("center", "landmarks")}
        state[WEIGHTS] = self._weights_code.of(self.covar_module)
        return state

    @property
    def mode(self) -> Tensor:
        """The mode of the weights, (D, Q) for D real features and Q latent functions, in float64.

        :raises ValueError: before the first fit, or where parameters or random weights have changed since.
        """
        return self._known().weights

    def weight_posterior(self) -> WeightPosterior | FunctionPosterior:
        """The posterior of the weights, without gradients in the parameters.

        :raises ValueError: where the model is not fitted, or stale.
        """
        known = self._known()
        if self._posterior is None:
            with torch.inference_mode(False), torch.no_grad():
                scale = self._functions().scale
                if len(scale) == 1:
                    gram = known.sums.gram[0] * scale.square()
                    self._posterior = WeightPosterior(gram, gram @ known.weights + known.sums.slope * scale)
                else:
                    factor = Precision(known.sums.gram, scale, self._latent.has_full_hessian).factor
                    self._posterior = FunctionPosterior(factor, known.weights)
        return self._posterior

    def posterior(self, x: Tensor) -> MultivariateNormal:
        """The approximate posterior of the latent functions: ``likelihood(model.posterior(x))`` predicts targets.

        Means and variances are computed in chunks of rows; the N x N covariance is formed only where it is asked for.
        Variances include what features of landmarks or of a truncated series lack. The distribution keeps its values,
        whatever happens to the model or to ``x`` later.

        :param x: inputs (..., N, d); (N, d) for classes.
        :returns: a normal distribution, and for classes a multitask normal distribution of Q functions, as
            GPyTorch's SoftmaxLikelihood takes it. It has the dtype of x.
        :raises ValueError: for bad inputs, or where the model is not fitted, or stale.
        """
        posterior = self.weight_posterior()
        _checks.finite(_checks.inputs(x).detach())
        _checks.same_kind(x, reference_tensor(self.covar_module, x), "x", "the kernel")
        is_multitask = self._latent.num_functions > 1
        if is_multitask and x.dim() != 2:
            raise ValueError(f"expected inputs of shape (N, d) for classes, got {tuple(x.shape)}; flatten the batch")
        kernel, mean = self._snapshots.take(self.covar_module, self.mean_module)
        functions = self._functions(kernel, mean)
        factor = OutputFactor.kronecker(torch.diag_embed(functions.scale), functions.num_features)
        features = functools.partial(_features, functions, torch.is_grad_enabled())
        weights = factor.scalar_weights(posterior.mean).squeeze(-1)
        chunks = row_chunks(x.shape[-2], functions.num_features)
        parts = (feature_product(features(x[..., rows, :]), weights) for rows in chunks)
        values = _checks.no_overflow(joined(parts, x.shape[-2]), x) + functions.mean_at(x)
        covariance = WeightSpaceCovariance(x.clone(), posterior, factor, features)
        residual = kernel.residual_variance(x)
        if is_multitask:
            if residual is not None:
                residual = residual.mT if residual.dim() == x.dim() else residual.unsqueeze(-1)
                residual = residual.expand(*x.shape[:-1], len(functions.scale)).flatten(-2)
            return MultitaskMultivariateNormal(values.to(x.dtype), plus_residual(covariance, residual))
        return MultivariateNormal(values.squeeze(-1).to(x.dtype), plus_residual(covariance, residual))

    def forward(self, x: Tensor) -> MultivariateNormal:
        """:meth:`posterior`, as GPyTorch's models are called."""
        return self.posterior(x)

    def log_marginal_likelihood(self) -> Tensor:
        r"""Laplace's approximation of the log evidence of the training data, differentiable in all parameters.

        .. math:: \log q(y) = \sum_i \log p(y_i \mid f_i) - \tfrac12 \|w\|^2 - \tfrac12 \log|B|

        at the mode w, whose dependence on the parameters is part of the gradient. With gradients enabled, fit and
        evaluate anew for every step.

        :returns: a float64 scalar, not divided by N.
        :raises ValueError: where the model is not fitted, or stale.

        Source: Rasmussen and Williams (2006), Eq. 3.32, and Algorithm 5.1 for the gradient.
        """
        known = self._known()
        if self._evidence is None:
            with torch.no_grad():
                scale, sums, weights = self._functions().scale, known.sums, known.weights
                log_determinant = Precision(sums.gram, scale, self._latent.has_full_hessian).log_determinant
                self._evidence = sums.log_density - 0.5 * (weights.square().sum() + log_determinant)
        return self._evidence

    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new random weights; the mode is then stale.

        :param generator: a CPU generator; default: PyTorch's.
        """
        self.covar_module.resample(generator)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: all but the graph of the gradients."""
        evidence = None if self._evidence is None else self._evidence.detach()
        return {**self.__dict__, "_evidence": evidence}

    def saved_attributes(self, with_rows: bool) -> dict[str, Any]:
        """What :func:`rfgp.save` writes: all but the factor of the posterior.

        :param with_rows: there are none.
        """
        return {**self.__getstate__(), "_posterior": None}

    @property
    def num_rows_kept(self) -> int:
        """0: predictions need no training rows."""
        return 0

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        if self._fitted is not None:
            device = reference_tensor(self.covar_module, self._fitted.weights).device
            self._fitted = self._fitted.to(device)
        self._posterior, self._evidence = None, None
        return self

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a state as torch modules do; on an error the model stays as it was.

        :raises ValueError: for the state of another model; this one stays as it was.
        """
        with maps_kept_on_error(self.covar_module):
            rest, _ = _Fitted.split(state_dict)
            _state.check(self, rest, strict=strict)
            return super().load_state_dict(state_dict, strict, assign)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._fitted is not None:
            destination.update({prefix + name: value for name, value in self._fitted.state_dict().items()})

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        with maps_kept_on_error(self.covar_module):
            rest, fitted = _Fitted.split(state_dict, prefix)
            _state.check(self, rest, prefix)
            if fitted is not None:
                self._check_fitted(fitted)
            super()._load_from_state_dict(rest, prefix, *args)
            device = reference_tensor(self.covar_module).device
            self._fitted = None if fitted is None else fitted.to(device)
            self._posterior, self._evidence = None, None

    def _check_fitted(self, fitted: _Fitted) -> None:
        """Raise a ValueError where a mode is not one of this model."""
        shapes = [tuple(part.shape) for part in (fitted.weights, fitted.sums.slope, fitted.sums.gram)]
        width = self._functions().num_features
        weights = width, self._latent.num_functions
        wanted = [weights, weights, (len(self._latent.pairs), width, width)]
        if shapes != wanted:
            raise ValueError(f"expected the state of a model with sums of shapes {wanted}, got {shapes}; make it alike")


class _Fitted(NamedTuple):
    """The mode, the sums over the training data there, and what both depend on."""

    weights: Tensor
    sums: LaplaceSums
    record: Record

    def to(self, device: torch.device) -> _Fitted:
        """The same on a device."""
        sums = LaplaceSums(*(part.to(device) for part in self.sums[:3]))
        return _Fitted(self.weights.to(device), sums, self.record.to(device))

    def state_dict(self) -> dict[str, Tensor]:
        """Tensors by name."""
        own = {"weights": self.weights, **dict(zip(LaplaceSums._fields, self.sums[:3], strict=False))}
        state = {_FITTED + name: value.clone() for name, value in own.items() if isinstance(value, Tensor)}
        return state | {_RECORD + name: value.clone() for name, value in self.record.tensors.items()}

    @classmethod
    def split(cls, state: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Any], _Fitted | None]:
        """What belongs to the parts of a model in a state, and what was fitted, if that is there.

        :raises ValueError: where only some of it is there, or something is no tensor.
        """
        _state.check_mapping(state)
        kinds = tuple(prefix + kind for kind in (_FITTED, _RECORD))
        own = {name: value for name, value in state.items() if name.startswith(kinds)}
        rest = {name: value for name, value in state.items() if name not in own}
        if not own:
            return rest, None
        names = [kinds[0] + name for name in ("weights", *LaplaceSums._fields[:3])]
        if any(name not in own for name in names) or not all(isinstance(value, Tensor) for value in own.values()):
            raise ValueError(f"expected tensors for {', '.join(names)}, got a state without some; save it again")
        weights, *sums = (own.pop(name).clone() for name in names)
        record = Record({name.removeprefix(kinds[1]): value for name, value in own.items()})
        return rest, cls(weights, LaplaceSums(*sums), record)


class _Rows:
    """The rows of a fit as checked batches, which can be gone through again.

    :param model: the model, whose kernel and likelihood they have to suit.
    :param x: inputs, or a loader.
    :param y: targets.
    """

    def __init__(self, model: LaplaceGP, x: Any, y: Any) -> None:
        if isinstance(x, Shard):
            raise ValueError("expected the rows of all ranks for a LaplaceGP, got the Shard of one; pass all rows")
        self.model, self.x, self.y = model, x, y
        known = batches(x, y, None)
        self._checked = [self._check(*batch) for batch in known] if isinstance(x, Tensor) else None
        if self._checked is None and iter(x) is x:
            raise ValueError(
                f"expected batches that can be gone through again, got {type(x).__name__}, which is used up after one "
                "pass; pass a list or a DataLoader"
            )

    def __iter__(self) -> Iterator[tuple[Tensor, Tensor]]:
        if self._checked is not None:
            yield from self._checked
            return
        for batch in batches(self.x, self.y, None):
            yield self._check(*batch)

    def _check(self, x: Any, y: Any, noise: Any) -> tuple[Tensor, Tensor]:
        model = self.model
        if noise is not None:
            raise ValueError("expected batches (x, y), got noise beside them; the likelihood of a LaplaceGP has it")
        _checks.finite(_checks.inputs(x).detach())
        if x.dim() != 2:
            raise ValueError(f"expected training inputs of shape (N, d), got {tuple(x.shape)}; fit one model per batch")
        _checks.same_kind(x, reference_tensor(model.covar_module, x), "x", "the kernel")
        return x, model._latent.targets(y, x)


def _check_parts(kernel: Any, mean: Any, num_functions: int) -> None:
    """Raise a ValueError where the kernel or the mean are not those of so many latent functions."""
    if kernel.has_output_factor:
        raise ValueError("expected a kernel of one output, got one of several; make a model for each output")
    if not isinstance(mean, Mean) or isinstance(mean, MultitaskMean):
        raise ValueError(
            f"expected a mean function of one output, got {type(mean).__name__}; give it a batch shape for classes"
        )
    allowed = [torch.Size()] if num_functions == 1 else [torch.Size(), torch.Size([num_functions])]
    scale = torch.Size(kernel.output_factor().shape[:-2])
    inner = kernel
    while isinstance(inner, gpytorch.kernels.ScaleKernel):
        inner = inner.base_kernel
    batch = mean.weights.shape[:-2] if isinstance(mean, LinearMean) else getattr(mean, "batch_shape", torch.Size())
    if inner.batch_shape or scale not in allowed or batch not in allowed:
        found = next(shape for shape in (inner.batch_shape, scale, batch) if shape)
        raise ValueError(
            f"expected batch shapes () or (Q,) of output scale and mean for Q = {num_functions} latent functions, and "
            f"() inside the features, got {tuple(found)}; batch only the ScaleKernel and the mean, over classes"
        )


def _checked_start(start: Tensor | None, zeros: Tensor) -> Tensor | None:
    """Weights in float64, or a ValueError where they are not like those that are searched for."""
    if start is None:
        return None
    if _checks.floating(start, "start").shape != zeros.shape:
        raise ValueError(f"expected start of shape {tuple(zeros.shape)}, got {tuple(start.shape)}; take the mode")
    return _checks.finite(start.detach(), "start").to(zeros)


def _features(functions: LatentFunctions, tracks: bool, x: Tensor) -> Tensor:
    """Real features, made later with gradients where these were enabled at first."""
    with torch.set_grad_enabled(tracks and torch.is_grad_enabled()):
        return functions.features(x)
