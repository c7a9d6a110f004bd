"""Likelihoods that are not Gaussian, by Laplace's approximation in weight space."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean, ZeroMean
from torch import Tensor

from ..._support import checks, states
from ...approximation import with_features
from ...approximation.maps import maps_kept_on_error
from ...approximation.reference_tensor import reference_tensor
from ...inference import GaussianPosterior
from ...inference.latent.laplace import LatentFunctions, functions_of_cells
from ...inference.local import LocalRows
from ...kernels.observation import check_observed_mean
from ...likelihoods import MultivariateNormal
from ..record import WEIGHTS, Record, WeightsCode
from ..snapshot import Snapshots
from .local_mode import LocalMode, rows_in_blocks
from .mode import LaplaceMode
from .rows import LaplaceRows, check_local, check_parts, checked_start, latent_functions

if TYPE_CHECKING:
    from ...approximation.feature_kernel import FeatureKernel

_MODE, _RECORD = "laplace.", "fitted_with."

Mode = LaplaceMode | LocalMode
"""The mode of weights, or of a function at rows in blocks."""


def named(mode: Mode, prefix: str) -> dict[str, Tensor]:
    """The tensors of a mode by name."""
    parts = {_MODE: mode.state_dict(), _RECORD: mode.record.tensors}
    return {prefix + kind + name: value.clone() for kind, part in parts.items() for name, value in part.items()}


def split(state: Mapping[str, Any], prefix: str = "") -> tuple[dict[str, Any], Mode | None]:
    """The state of the parts of a model and, if there, what was fitted; a ValueError for a broken state."""
    states.check_mapping(state)
    kinds = tuple(prefix + kind for kind in (_MODE, _RECORD))
    tensors = {name: value for name, value in state.items() if name.startswith(kinds)}
    rest = {name: value for name, value in state.items() if name not in tensors}
    if not tensors:
        return rest, None
    if not all(isinstance(value, Tensor) for value in tensors.values()):
        raise ValueError("expected tensors for what was fitted, got others in the state; save it again")
    found, record = (
        {name.removeprefix(kind): value.clone() for name, value in tensors.items() if name.startswith(kind)}
        for kind in kinds
    )
    kind = LocalMode if "log_evidence" in found else LaplaceMode
    try:
        return rest, kind.restored(found, Record(record))
    except KeyError as error:
        raise ValueError(f"expected a tensor for {error}, got a state without it; save it again") from None


MAX_WEIGHTS = 8192
"""The largest number of weights of all classes together that a full Hessian is formed for."""


class LaplaceGP(torch.nn.Module):
    r"""A Gaussian process with random features and any likelihood, by Laplace's approximation, at O(N D^2) per step.

    .. math:: f(x) = m(x) + \phi(x)^\top w, \quad w \sim N(0, I), \qquad
        B = I + \sum_i W_i \phi_i \phi_i^\top, \qquad w \leftarrow w + t B^{-1} \Big(\sum_i g_i \phi_i - w\Big)

    with :math:`g_i = \partial \log p(y_i \mid f_i) / \partial f_i` and
    :math:`W_i = -\partial^2 \log p(y_i \mid f_i) / \partial f_i^2`, by automatic differentiation of the likelihood,
    which need not be log-concave. The posterior is :math:`N(w, B^{-1})` at the mode. A SoftmaxLikelihood has Q latent
    functions on the same features:

    .. math:: B = I + \sum_i W_i \otimes \phi_i \phi_i^\top, \qquad W_i = \mathrm{diag}(p_i) - p_i p_i^\top

    Other likelihoods of several functions (:class:`rfgp.likelihoods.SeveralFunctionsLikelihood`) need not be concave:
    B then has the Fisher information, the expected :math:`W_i`, which is never negative, at the mode of the exact log
    posterior.

    Tasks of a MultitaskKernel have correlated latent functions, and a likelihood of one function for every cell of a
    table (N, T), of which some may be missing.

    :param kernel: a scalar kernel made by :func:`rfgp.approximate`, or a GPyTorch ScaleKernel around one, which may
        have a batch shape (Q,) for classes; or a MultitaskKernel. Complex features enter as real and imaginary parts.
    :param likelihood: a GPyTorch likelihood of one latent function, a GaussianLikelihood, a SoftmaxLikelihood, or
        another one of several functions.
    :param mean: any mean function, for classes with a batch shape (Q,) if wanted, for tasks also a MultitaskMean;
        default: ZeroMean.
    :param block_size: model the residual of the features inside blocks of at most so many near rows, at
        O(N (B^2 + B D)) more per step, for landmarks. Cells of tasks count as rows. The classes of a softmax without
        mixing weights cost Q times that, other functions of a row Q^3 times, and all of them O(N (Q D)^2). The model
        keeps its rows. Default: no blocks.
    :param num_neighbors: with blocks, predictions use the residual of so many nearest training rows; None for those of
        the block that a point lies in; default: 64.
    :param hessian: for a SoftmaxLikelihood "full", up to 8,192 weights, or "block_diagonal", with the diagonal of
        :math:`W_i` in posterior and evidence, at Q Gram matrices per pass; the mode is the same. Blocks need "full".
    :param product_dtype: the dtype of Gram products without blocks; default: float64, or float32 for float32 features
        where the curvature is below a hundredth of the inverse of the largest prior variance.
    :raises ValueError: for a kernel without features, or of several outputs that is not separable, or another
        likelihood, mean or dtype.

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
        block_size: int | None = None,
        num_neighbors: int | None = 64,
        hessian: str = "full",
        product_dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.covar_module = with_features(kernel)
        self.likelihood = likelihood
        self.mean_module = ZeroMean() if mean is None else mean
        self.block_size = None if block_size is None else checks.positive_integer("block_size", block_size)
        self.num_neighbors = None if num_neighbors is None else checks.positive_integer("num_neighbors", num_neighbors)
        self.hessian = hessian
        self.product_dtype = None if product_dtype is None else checks.product_dtype(product_dtype)
        self.latent = latent_functions(self.covar_module, likelihood, hessian)
        check_parts(self.covar_module, self.mean_module, self.latent.num_functions)
        check_observed_mean(self.covar_module, self.mean_module)
        if self.block_size is not None:
            check_local(self.covar_module, self.latent)
        self.num_passes = 0
        """How many times the last fit has summed the Hessian to find the mode, steps that were shortened included."""
        self._mode: Mode | None = None
        self._evidence: Tensor | None = None
        self._posterior: GaussianPosterior | None = None
        self._weights_code = WeightsCode()
        self._snapshots = Snapshots()

    def condition(
        self,
        x: Tensor | Iterable[tuple[Tensor, ...]],
        y: Tensor | None = None,
        *,
        exposure: Tensor | None = None,
        start: Tensor | None = None,
    ) -> Self:
        """Find the mode, forget earlier data, and leave training mode.

        :param x: inputs (N, d), or re-iterable batches (x, y) or (x, y, exposure), such as a DataLoader; every Newton
            step reads them once, but with blocks, which hold all rows.
        :param y: targets (N,): real ones, counts, zeros and ones, or integer class labels, as the likelihood has them;
            (N, T) for tasks, with NaN for missing ones.
        :param exposure: of counts, of the shape of y, such as years or populations: their means are the rates times
            these, for a likelihood of :mod:`rfgp.likelihoods`; default: ones. The functions stay those of the rates:
            ``likelihood(model.posterior(x), exposure=e)`` predicts counts.
        :param start: where Newton's method begins, such as an earlier ``mode`` of the same shape; default: zeros.
        :raises ValueError: for bad data, or where there is no mode; the model stays as it was.
        """
        x = checks.columns(x)
        tracks = torch.is_grad_enabled()
        with maps_kept_on_error(self.covar_module), torch.inference_mode(False), torch.set_grad_enabled(tracks):
            self.find_mode(LaplaceRows(self, x, y, exposure), start)
        return self

    def find_mode(self, rows: LaplaceRows, start: Tensor | None = None) -> Tensor:
        """Find the mode given checked rows, and forget earlier data; the log evidence there, as of :meth:`condition`.

        Training checks rows once, and finds their mode at every evaluation.
        """
        self._check_size(rows)
        if self.block_size is None:
            functions = self._functions()
            shape = functions.num_features, functions.mixing.shape[-1]
            self._take(*LaplaceMode.search(functions, rows, checked_start(start, shape), self._record()))
        else:
            before = self._mode if isinstance(self._mode, LocalMode) else None
            self._take(*self._search_in_blocks(rows_in_blocks(self, rows, before), start))
        return self.log_marginal_likelihood()

    def update(self, x: Tensor, y: Tensor, *, exposure: Tensor | None = None) -> Self:
        """Add rows to a model with blocks, and go on from its mode; the result equals conditioning on all rows.

        :param x: inputs, (N, d).
        :param y: targets, (N,).
        :param exposure: of counts, as in :meth:`condition`.
        :raises ValueError: for bad data, without blocks, or where the model is not fitted, or stale.
        """
        x = checks.columns(x)
        at, tracks = self._conditioned(), torch.is_grad_enabled()
        if not isinstance(at, LocalMode):
            raise ValueError(
                "expected a model with blocks for update, which keep their rows, got one without; call condition(x, y, "
                "start=model.mode) with all rows"
            )
        with torch.inference_mode(False), torch.set_grad_enabled(tracks):
            (rows,) = LaplaceRows(self, checks.inputs(x), y, exposure)
            self._take(*self._search_in_blocks(*at.extended(*rows)))
        return self

    def _search_in_blocks(self, rows: LocalRows, start: Tensor | None) -> tuple[LocalMode, Tensor, int]:
        begin = checked_start(start, (len(rows.x), functions_of_cells(self._functions()).likelihood.num_functions))
        return LocalMode.search(self._functions(), rows, begin, self._record())

    def _record(self) -> Record:
        return Record(self._parameter_state())

    def _take(self, mode: Mode, evidence: Tensor, num_passes: int) -> None:
        """Let this be what was fitted, and leave training mode, in which GPyTorch draws classes independently."""
        checks.finite(evidence.detach(), "the evidence")
        self.eval()
        self._mode, self._evidence, self._posterior, self.num_passes = mode, evidence, None, num_passes

    def _check_size(self, rows: Iterable[tuple[Tensor, ...]]) -> None:
        """Make the maps of the kernel for the first rows, and raise a ValueError where a Hessian would not fit."""
        x, *_ = next(iter(rows), (None,))
        if x is None:
            raise ValueError("expected at least one batch from the loader, got none; check that it is not used up")
        with torch.no_grad():
            self.covar_module.scalar_features(x[:1])
        functions = self._functions()
        width, count = functions.num_features, functions.mixing.shape[-1]
        if self.latent.has_full_hessian and count > 1 and width * count > MAX_WEIGHTS:
            has_choice = not self.covar_module.has_output_factor and self.block_size is None
            advice = 'use hessian="block_diagonal", or fewer features' if has_choice else "use fewer features"
            raise ValueError(
                f"expected at most {MAX_WEIGHTS} weights of all functions for a full Hessian, got {count} x {width}; "
                f"{advice}"
            )
        pairs = len(self.latent.pairs)
        what = f"{pairs} Gram matrices of {width} features"
        checks.fits_in_memory(24.0 * pairs * width**2, what, "use fewer features")

    def _functions(self, kernel: FeatureKernel | None = None, mean: Mean | None = None) -> LatentFunctions:
        kernel = self.covar_module if kernel is None else kernel
        return LatentFunctions(kernel, self.mean_module if mean is None else mean, self.latent, self.product_dtype)

    def _conditioned(self) -> Mode:
        """What was fitted; a ValueError before the first fit, or where parameters or weights have changed since."""
        if self._mode is None:
            raise ValueError("expected a fitted model, got one without data; call condition(x, y) first")
        self._mode.record.check(self._parameter_state(), "the mode was computed")
        return self._mode

    def _parameter_state(self) -> dict[str, Tensor]:
        """What the mode depends on, by name."""
        state = {name: parameter.detach() for name, parameter in self.named_parameters()}
        buffers = self.covar_module.named_buffers()
        state |= {name: b for name, b in buffers if name.rpartition(".")[2] in ("center", "landmarks")}
        state[WEIGHTS] = self._weights_code.of(self.covar_module)
        return state

    @property
    def mode(self) -> Tensor:
        """The mode of the weights, (D, Q) for D real features and Q latent functions, in float64; (D, R) for tasks
        whose covariance has a root of R columns.

        With blocks that of the coefficients :math:`K^{-1} (f - m)` of the N rows, (N, 1), or (N, Q) for classes.

        :raises ValueError: before the first fit, or where parameters or random weights have changed since.
        """
        return self._conditioned().weights

    def weight_posterior(self) -> GaussianPosterior:
        """The posterior of the weights, without gradients in the parameters; raises as :attr:`mode` does."""
        at = self._conditioned()
        if self._posterior is None:
            with torch.inference_mode(False), torch.no_grad():
                self._posterior = at.posterior(self._functions())
        return self._posterior

    def posterior(self, x: Tensor) -> MultivariateNormal:
        """The approximate posterior of the latent functions: ``likelihood(model.posterior(x))`` predicts targets.

        :param x: inputs (..., N, d); (N, d) for classes and tasks.
        :returns: a normal distribution, or a multitask normal distribution of Q functions for classes and tasks.
        :raises ValueError: for bad inputs, or where the model is not fitted, or stale.
        """
        x = checks.columns(x)
        posterior = self.weight_posterior()
        checks.finite(checks.inputs(x).detach())
        checks.same_kind(x, reference_tensor(self.covar_module, x), "x", "the kernel")
        if self.latent.num_functions > 1 and x.dim() != 2:
            raise ValueError(f"expected inputs of shape (N, d) for classes or tasks, got {tuple(x.shape)}; flatten it")
        functions = self._functions(*self._snapshots.take(self.covar_module, self.mean_module))
        return self._conditioned().distribution(functions, x, posterior, self.num_neighbors)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """:meth:`posterior`, as GPyTorch's models are called."""
        return self.posterior(x)

    def log_marginal_likelihood(self) -> Tensor:
        r"""Laplace's approximation of the log evidence, a float64 scalar, differentiable in all parameters.

        .. math:: \log q(y) = \sum_i \log p(y_i \mid f_i) - \tfrac12 \|w\|^2 - \tfrac12 \log|B|

        :raises ValueError: where the model is not fitted, or stale: condition anew for every step.

        Source: Rasmussen and Williams (2006), Eq. 3.32, and Algorithm 5.1 for the gradient.
        """
        at = self._conditioned()
        if self._evidence is None:
            with torch.no_grad():
                self._evidence = at.evidence(self._functions())
        return self._evidence

    def resample(self, generator: torch.Generator | None = None) -> Self:
        """Draw new random weights, from PyTorch's CPU generator by default; the mode is then stale."""
        self.covar_module.resample(generator)
        return self

    def __getstate__(self) -> dict[str, Any]:
        """What copies and pickles hold: all but the graph of the gradients."""
        evidence = None if self._evidence is None else self._evidence.detach()
        return {**self.__dict__, "_evidence": evidence}

    def saved_attributes(self, with_rows: bool) -> dict[str, Any]:
        """What :func:`rfgp.save` writes: all but the factor of the posterior; with blocks rows are needed."""
        if self.num_rows_kept and not with_rows:
            raise ValueError(
                "expected with_rows=True for a LaplaceGP with blocks, got False; it predicts from its training rows: "
                "save one without block_size"
            )
        return {**self.__getstate__(), "_posterior": None}

    @property
    def num_rows_kept(self) -> int:
        """The number of rows that predictions need: 0 without blocks."""
        return 0 if self._mode is None else self._mode.num_rows_kept

    def _apply(self, fn: Any, recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        if self._mode is not None:
            device = reference_tensor(self.covar_module, self._mode.weights).device
            self._mode = self._mode.to(device)
        self._posterior, self._evidence = None, None
        return self

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Load a state as torch modules do; the state of another model raises an error and changes nothing."""
        with maps_kept_on_error(self.covar_module):
            rest, _ = split(state_dict)
            states.check(self, rest, strict=strict)
            return super().load_state_dict(state_dict, strict, assign)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        if self._mode is not None:
            destination.update(named(self._mode, prefix))

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        with maps_kept_on_error(self.covar_module):
            rest, fitted = split(state_dict, prefix)
            states.check(self, rest, prefix)
            if fitted is not None:
                self._check_fitted(fitted)
            super()._load_from_state_dict(rest, prefix, *args)
            device = reference_tensor(self.covar_module).device
            self._mode = None if fitted is None else fitted.to(device)
            self._posterior, self._evidence = None, None
            self.train(self.training and fitted is None)

    def _check_fitted(self, fitted: Mode) -> None:
        """Raise a ValueError where a mode is not one of this model."""
        if isinstance(fitted, LocalMode) != (self.block_size is not None):
            raise ValueError("expected the state of a model with the same block_size, got another; make it alike")
        fitted.check(self._functions())
