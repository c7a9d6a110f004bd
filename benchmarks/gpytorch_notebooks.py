"""The example notebooks of GPyTorch with one line changed: how far the posterior is from that of the exact kernel.

Every function here builds the model class of one notebook (or of several that share it) on rows of our own, with the
kernel that ``line`` returns: the exact one, or ``rfgp.approximate(kernel, 128, train_inputs=x)``. Both are trained in
the same way, by the notebook's 50 steps of Adam. Then an approximated model takes the parameters of the exact one, and
the posteriors of the function at held-out rows are compared: in nats a value, and in standard deviations of the exact
posterior; landmarks beside ``method="auto"``. Everything is in float64, and GPyTorch takes Cholesky factors. Kernels
that GPyTorch itself approximates (KISS-GP, SGPR) are exact here. Models that predict by draws of their own are compared
by the moments of these.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import functools
import math
import time
import warnings
from collections.abc import Callable
from typing import Any

import common
import gpytorch
import torch
from gpytorch.constraints import GreaterThan, Interval
from gpytorch.distributions import MultitaskMultivariateNormal, MultivariateNormal
from gpytorch.kernels import (
    GaussianSymmetrizedKLKernel,
    IndexKernel,
    Kernel,
    LCMKernel,
    MaternKernel,
    MultitaskKernel,
    PolynomialKernel,
    RBFKernel,
    RBFKernelGrad,
    ScaleKernel,
    SpectralDeltaKernel,
    SpectralMixtureKernel,
)
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    DirichletClassificationLikelihood,
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    LikelihoodList,
    MultitaskGaussianLikelihood,
    StudentTLikelihood,
)
from gpytorch.means import ConstantMean, ConstantMeanGrad, MultitaskMean, ZeroMean
from gpytorch.mlls import (
    DeepApproximateMLL,
    DeepPredictiveLogLikelihood,
    ExactMarginalLogLikelihood,
    PredictiveLogLikelihood,
    SumMarginalLogLikelihood,
    VariationalELBO,
)
from gpytorch.models import ApproximateGP, ExactGP, IndependentModelList
from gpytorch.models.deep_gps import DeepGP, DeepGPLayer
from gpytorch.models.deep_gps.dspp import DSPP, DSPPLayer
from gpytorch.models.gplvm import BayesianGPLVM, VariationalLatentVariable
from gpytorch.priors import GammaPrior, NormalPrior, UniformPrior
from gpytorch.variational import (
    CholeskyVariationalDistribution,
    CiqVariationalStrategy,
    LMCVariationalStrategy,
    MeanFieldVariationalDistribution,
    NaturalVariationalDistribution,
    NNVariationalStrategy,
    VariationalStrategy,
)
from gpytorch_models import ExactModel
from torch import Tensor

import rfgp
from rfgp.functionals import Gradient, Value
from rfgp.kernels import LinearlyObservedKernel

ROWS, NEW, FEATURES, STEPS, INDUCING = 500, 200, 128, 50, 32
NOISE = 0.2
QUICK_STEPS = 2


class Line:
    """The line of a notebook that makes the kernel: with our one line, or without.

    :param method: None for the kernel as it is.
    """

    def __init__(self, method: str | None) -> None:
        self.method, self.kernels = method, list[Kernel]()

    def __call__(self, kernel: Kernel, x: Tensor | None = None, width: int | None = None, **options: Any) -> Any:
        """The kernel of the model, for training inputs where it sees these."""
        self.kernels.append(kernel)
        if self.method is None:
            return kernel
        width = width or FEATURES
        return rfgp.approximate(kernel, width, train_inputs=x, seed=0, method=self.method, **options)


@dataclasses.dataclass(frozen=True)
class Task:
    """A model of a notebook that was built, and what the notebook does with it.

    :param train: it learns the parameters, in so many steps.
    :param latent: the posterior of the function at held-out inputs.
    :param observed: the distribution of observations there.
    :param truth: these observations.
    """

    model: Any
    train: Callable[[int], None]
    latent: Callable[[], Any]
    observed: Callable[[], Any]
    truth: Tensor

    def take(self, line: Line, other: Task, other_line: Line) -> None:
        """Take all parameters of another one, or draws of them."""
        own, known = self.model.state_dict(), other.model.state_dict()
        if hasattr(other.model, "draws"):
            names = [name for name, *_ in self.model.named_priors()]
            known = {name.replace("exact_kernel.", ""): name for name in names}
            self.model.draws = {known[name]: draws for name, draws in other.model.draws.items()}
            self.model.pyro_load_from_samples(self.model.draws)
            return
        same = {name: value for name, value in known.items() if name in own and own[name].shape == value.shape}
        self.model.load_state_dict(own | same)
        with torch.no_grad():
            for kernel, exact in zip(line.kernels, other_line.kernels, strict=True):
                for parameter, value in zip(kernel.parameters(), exact.parameters(), strict=True):
                    parameter.copy_(value)


def rows(dim: int, count: int | None = None, seed: int = 0) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Inputs in the unit cube and noisy values of a smooth function, to train on and held out."""
    generator, count = torch.Generator().manual_seed(seed), count or ROWS
    x = torch.rand(count + NEW, dim, generator=generator)
    y = function(x) + NOISE * torch.randn(len(x), generator=generator)
    return x[:count], y[:count], x[count:], y[count:]


def function(x: Tensor) -> Tensor:
    """One wave and a half along the first input, and a slope along the others."""
    return (3.0 * math.pi * x[:, 0]).sin() + x[:, 1:].sum(-1)


def adam(parameters: Any, loss: Callable[[], Tensor], steps: int, others: tuple[Any, ...] = ()) -> None:
    """The notebooks' loop."""
    optimizers = [torch.optim.Adam(parameters, lr=0.1), *others]
    for _ in range(steps):
        for optimizer in optimizers:
            optimizer.zero_grad()
        loss().backward()
        for optimizer in optimizers:
            optimizer.step()


def exact(model: Any, new_x: Any, truth: Tensor, **given: Callable[[], Any]) -> Task:
    """A task of an ExactGP, trained by its marginal likelihood.

    :param given: other functions of the task.
    """
    likelihood, inputs = model.likelihood, new_x if isinstance(new_x, tuple) else (new_x,)

    def train(steps: int) -> None:
        model.train()
        likelihood.train()
        evidence = ExactMarginalLogLikelihood(likelihood, model)
        adam(model.parameters(), lambda: -evidence(model(*model.train_inputs), model.train_targets).sum(), steps)

    def latent() -> Any:
        model.eval()
        likelihood.eval()
        return model(*inputs)

    usual: dict[str, Any] = {"train": train, "latent": latent, "observed": lambda: likelihood(latent())}
    return Task(model, **usual | given, truth=truth)


def variational(
    model: Any,
    likelihood: Any,
    x: Tensor,
    y: Tensor,
    new_x: Tensor,
    truth: Tensor,
    objective: Any = None,
    natural: bool = False,
) -> Task:
    """A task of an ApproximateGP, trained by a bound.

    :param objective: the class of the bound; default: VariationalELBO.
    :param natural: whether its distribution takes natural gradients.
    """
    both = torch.nn.ModuleDict({"model": model, "likelihood": likelihood})

    def train(steps: int) -> None:
        both.train()
        bound = (objective or VariationalELBO)(likelihood, model, num_data=y.shape[0])
        given = list(model.variational_parameters()) if natural else []
        others = (gpytorch.optim.NGD(given, num_data=y.shape[0], lr=0.1),) if natural else ()
        kept = [p for p in both.parameters() if all(p is not other for other in given)]
        adam(kept, lambda: -bound(model(x), y), steps, others)

    def latent() -> Any:
        both.eval()
        return model(new_x)

    return Task(both, train, latent, lambda: likelihood(latent()), truth)


# Basic usage


def hyperparameters(line: Line) -> Task:
    """Constraints and priors."""
    x, y, new_x, new_y = rows(2)
    base = RBFKernel(2, lengthscale_prior=GammaPrior(3.0, 6.0), lengthscale_constraint=Interval(0.01, 10.0))
    kernel = line(ScaleKernel(base, outputscale_prior=GammaPrior(2.0, 0.15)), x)
    likelihood = GaussianLikelihood(noise_prior=GammaPrior(1.1, 0.05), noise_constraint=GreaterThan(1e-3))
    return exact(ExactModel(x, y, likelihood, kernel, ConstantMean(constant_prior=NormalPrior(0.0, 1.0))), new_x, new_y)


class SincKernel(Kernel):
    """The notebook's kernel sin(pi r) / (pi r), with a lengthscale."""

    has_lengthscale, is_stationary = True, True

    def forward(self, x1: Tensor, x2: Tensor, **params: Any) -> Tensor:
        """Its values."""
        return torch.sinc(self.covar_dist(x1 / self.lengthscale, x2 / self.lengthscale, **params))


def of_kernel(make: Callable[[Tensor, Tensor], Kernel], dim: int, line: Line) -> Task:
    """The simplest notebook: a kernel, which takes the rows, and noise."""
    x, y, new_x, new_y = rows(dim)
    return exact(ExactModel(x, y, GaussianLikelihood(), line(make(x, y), x)), new_x, new_y)


def saved(line: Line) -> Task:
    """A trained model whose state is loaded into another one."""
    first, second = simple(line), simple(line)

    def latent() -> Any:
        second.model.load_state_dict(first.model.state_dict())
        return second.latent()

    return dataclasses.replace(first, latent=latent, observed=lambda: second.model.likelihood(latent()))


class ByColumn(ExactGP):
    """A kernel for every column, as a batch, that are added or multiplied."""

    def __init__(self, x: Tensor, y: Tensor, kernel: Any, join: str) -> None:
        super().__init__(x, y, GaussianLikelihood())
        self.mean_module, self.covar_module, self._join = ConstantMean(), kernel, join

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at x."""
        columns = self.covar_module(x.mT.unsqueeze(-1))
        return MultivariateNormal(self.mean_module(x), getattr(columns, self._join)(dim=-3))


def by_column(join: str, line: Line) -> Task:
    """Additive or product structure, of few rows, since GPyTorch's product of a batch is slow."""
    x, y, new_x, new_y = rows(3, count=ROWS // 5)
    kernel = line(RBFKernel(batch_shape=torch.Size([3])), input_dim=1)
    return exact(ByColumn(x, y, kernel, join), new_x, new_y)


# Exact regression


def scaled_gaussian(x: Tensor, _: Tensor) -> Kernel:
    """The notebooks' usual kernel."""
    return ScaleKernel(RBFKernel(ard_num_dims=x.shape[-1]))


simple = functools.partial(of_kernel, scaled_gaussian, 1)


def mixture(x: Tensor, y: Tensor) -> Kernel:
    """A spectral mixture that begins at the data."""
    kernel = SpectralMixtureKernel(num_mixtures=4)
    kernel.initialize_from_data(x, y)
    return kernel


def deltas(x: Tensor, y: Tensor) -> Kernel:
    """The notebook's spectral deltas; it begins with 1500 of them."""
    kernel = SpectralDeltaKernel(num_dims=1, num_deltas=64)
    kernel.initialize_from_data(x, y)
    return ScaleKernel(kernel)


def fully_bayesian(line: Line) -> Task:
    """Hamiltonian Monte Carlo of the parameters."""
    import pyro
    from pyro.infer import MCMC, NUTS

    x, y, new_x, new_y = rows(1, count=100)
    base = RBFKernel(lengthscale_prior=UniformPrior(0.01, 0.5))
    kernel = line(ScaleKernel(base, outputscale_prior=UniformPrior(1.0, 2.0)), x, width=50)
    likelihood = GaussianLikelihood(noise_prior=UniformPrior(0.01, 0.5))
    model = ExactModel(x, y, likelihood, kernel, ConstantMean(constant_prior=UniformPrior(-1.0, 1.0)))

    def joint(x: Tensor, y: Tensor) -> Tensor:
        sampled = model.pyro_sample_from_prior()
        pyro.sample("obs", sampled.likelihood(sampled(x)), obs=y)
        return y

    def train(steps: int) -> None:
        count = max(steps // 5, 2)
        chain = MCMC(NUTS(joint, max_tree_depth=4), num_samples=count, warmup_steps=count, disable_progbar=True)
        chain.run(x, y)
        model.draws = chain.get_samples()
        model.pyro_load_from_samples(model.draws)

    def observed() -> Any:
        found = model.likelihood(task.latent())
        mean = found.mean.mean(0)
        return torch.distributions.Normal(mean, (found.variance + found.mean.square()).mean(0).sub(mean**2).sqrt())

    task = exact(model, new_x, new_y, train=train, observed=observed)
    return dataclasses.replace(task, latent=lambda: _of_draws(task, new_x))


def _of_draws(task: Task, new_x: Tensor) -> Any:
    """The posterior of every draw of the parameters."""
    task.model.eval()
    count = len(next(iter(task.model.draws.values())))
    return task.model(new_x.expand(count, *new_x.shape))


def distributions(line: Line) -> Task:
    """Inputs that are normal distributions, by their means and log variances."""
    x, y, new_x, new_y = rows(1)
    x, new_x = (torch.cat([part, torch.full_like(part, math.log(0.01))], -1) for part in (x, new_x))
    kernel = line(ScaleKernel(GaussianSymmetrizedKLKernel()), x)
    return exact(ExactModel(x, y, GaussianLikelihood(), kernel), new_x, new_y)


def labels(line: Line) -> Task:
    """Dirichlet classification."""
    x, _, new_x, _ = rows(2)
    y, new_y = ((part.sum(-1) * 3.0 + (6.0 * part[:, 0]).sin()).long().clamp(0, 2) for part in (x, new_x))
    likelihood = DirichletClassificationLikelihood(y, learn_additional_noise=True, dtype=x.dtype)
    batch = torch.Size([3])
    kernel = line(ScaleKernel(RBFKernel(batch_shape=batch), batch_shape=batch), x)
    model = ExactModel(x, likelihood.transformed_targets, likelihood, kernel)
    task = exact(model, new_x, new_y)

    def observed() -> Any:
        torch.manual_seed(0)
        return torch.distributions.Categorical(task.latent().sample(torch.Size([256])).softmax(-2).mean(0).mT)

    return dataclasses.replace(task, observed=observed)


def fixed_noise(line: Line) -> Task:
    """A known noise for every row."""
    x, y, new_x, new_y = rows(1)
    noise, new_noise = (NOISE**2 * torch.ones(len(part)) for part in (x, new_x))
    model = ExactModel(x, y, FixedNoiseGaussianLikelihood(noise), line(scaled_gaussian(x, y), x))
    task = exact(model, new_x, new_y)
    return dataclasses.replace(task, observed=lambda: model.likelihood(task.latent(), noise=new_noise))


# Scalable regression


def settings(**flags: bool) -> Callable[[Line], Task]:
    """The simple notebook with settings of GPyTorch at predictions."""

    def build(line: Line) -> Task:
        task = simple(line)

        def latent() -> Any:
            with torch.no_grad():
                names = [getattr(gpytorch.settings, name)(is_on) for name, is_on in flags.items()]
                for setting in names:
                    setting.__enter__()
                try:
                    found = task.latent()
                    found.rsample(torch.Size([2]))
                    return MultivariateNormal(found.mean, torch.diag_embed(found.variance))
                finally:
                    for setting in reversed(names):
                        setting.__exit__()

        return dataclasses.replace(task, latent=latent, observed=lambda: task.model.likelihood(latent()))

    return build


# Several outputs


def two_outputs() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """A sine and a cosine."""
    x, y, new_x, new_y = rows(1)
    both = [(3.0 * math.pi * part[:, 0]).cos() + 0.5 * z for part, z in ((x, y), (new_x, new_y))]
    return x, torch.stack([y, both[0]], -1), new_x, torch.stack([new_y, both[1]], -1)


class Multitask(ExactGP):
    """Any kernel of two outputs."""

    def __init__(self, x: Tensor, y: Tensor, kernel: Any) -> None:
        super().__init__(x, y, MultitaskGaussianLikelihood(num_tasks=2))
        self.mean_module, self.covar_module = MultitaskMean(ConstantMean(), num_tasks=2), kernel

    def forward(self, x: Tensor) -> MultitaskMultivariateNormal:
        """The prior at x."""
        return MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


def multitask(line: Line, make: Callable[[], Kernel] | None = None, is_partly_missing: bool = False) -> Task:
    """Correlated outputs, all of them or some."""
    x, y, new_x, new_y = two_outputs()
    if is_partly_missing:
        y[::5, 0] = torch.nan
    kernel = make() if make else MultitaskKernel(RBFKernel(), num_tasks=2, rank=1)
    task = exact(Multitask(x, y, line(kernel, x)), new_x, new_y)
    if not is_partly_missing:
        return task

    def masked(function: Callable[..., Any]) -> Callable[..., Any]:
        def inside(*arguments: Any) -> Any:
            with gpytorch.settings.observation_nan_policy("mask"):
                return function(*arguments)

        return inside

    parts = {name: masked(getattr(task, name)) for name in ("train", "latent", "observed")}
    return dataclasses.replace(task, **parts)


def lcm() -> Kernel:
    """A linear model of coregionalization."""
    return LCMKernel([RBFKernel(), MaternKernel(2.5)], num_tasks=2, rank=1)


class BatchIndependent(ExactGP):
    """A kernel of its own for each output, as a batch."""

    def __init__(self, x: Tensor, y: Tensor, kernel: Any) -> None:
        super().__init__(x, y, MultitaskGaussianLikelihood(num_tasks=2))
        self.mean_module, self.covar_module = ConstantMean(batch_shape=torch.Size([2])), kernel

    def forward(self, x: Tensor) -> MultitaskMultivariateNormal:
        """The prior at x."""
        one_by_one = MultivariateNormal(self.mean_module(x), self.covar_module(x))
        return MultitaskMultivariateNormal.from_batch_mvn(one_by_one)


def scaled_batch() -> Kernel:
    """Two Gaussian kernels."""
    return ScaleKernel(RBFKernel(batch_shape=torch.Size([2])), batch_shape=torch.Size([2]))


def batch_independent(line: Line) -> Task:
    """Independent outputs."""
    x, y, new_x, new_y = two_outputs()
    return exact(BatchIndependent(x, y, line(scaled_batch(), x)), new_x, new_y)


class Hadamard(ExactGP):
    """One output for each row, whose number is an input."""

    def __init__(self, x: tuple[Tensor, Tensor], y: Tensor, kernel: Any) -> None:
        super().__init__(x, y, GaussianLikelihood())
        self.mean_module, self.covar_module = ConstantMean(), kernel
        self.task_covar_module = IndexKernel(num_tasks=2, rank=1)

    def forward(self, x: Tensor, task: Tensor) -> MultivariateNormal:
        """The prior at x for tasks."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x).mul(self.task_covar_module(task)))


def hadamard(line: Line) -> Task:
    """A product with the covariance of tasks."""
    x, y, new_x, new_y = two_outputs()
    task, new_task = (torch.arange(len(part)).unsqueeze(-1) % 2 for part in (x, new_x))
    targets, truth = (part.gather(-1, index).squeeze(-1) for part, index in ((y, task), (new_y, new_task)))
    return exact(Hadamard((x, task), targets, line(RBFKernel(), x)), (new_x, new_task), truth)


def model_list(line: Line) -> Task:
    """Independent models."""
    x, y, new_x, new_y = two_outputs()
    models = [ExactModel(x, y[:, i], GaussianLikelihood(), line(scaled_gaussian(x, y), x)) for i in range(2)]
    model, likelihood = IndependentModelList(*models), LikelihoodList(*[part.likelihood for part in models])

    def train(steps: int) -> None:
        model.train()
        evidence = SumMarginalLogLikelihood(likelihood, model)
        adam(model.parameters(), lambda: -evidence(model(*model.train_inputs), model.train_targets), steps)

    def joined(found: list[MultivariateNormal]) -> Any:
        return MultitaskMultivariateNormal.from_independent_mvns(found)

    def latent() -> Any:
        model.eval()
        likelihood.eval()
        return joined(model(new_x, new_x))

    def observed() -> Any:
        latent()
        return joined(likelihood(*model(new_x, new_x)))

    return Task(model, train, latent, observed, new_y)


# Variational models


class Variational(ApproximateGP):
    """A variational model with a strategy, and a distribution of inducing values."""

    def __init__(self, make: Callable[[Any], Any], kernel: Any, batch: tuple[int, ...] = ()) -> None:
        super().__init__(make(self))
        self.mean_module, self.covar_module = ConstantMean(batch_shape=torch.Size(batch)), kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at x."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def strategy(
    points: Tensor, kind: Any = VariationalStrategy, distribution: Any = CholeskyVariationalDistribution
) -> Any:
    """A strategy of inducing points that are learned."""
    return lambda model: kind(model, points.clone(), distribution(len(points)), learn_inducing_locations=True)


def svgp(
    line: Line,
    likelihood: Callable[[], Any] = GaussianLikelihood,
    kind: Any = VariationalStrategy,
    distribution: Any = CholeskyVariationalDistribution,
    objective: Any = None,
    is_binary: bool = False,
) -> Task:
    """The notebooks of SVGP."""
    x, y, new_x, new_y = rows(2)
    if is_binary:
        y, new_y = (y > 0.5).to(y.dtype), (new_y > 0.5).to(y.dtype)
    kernel = line(scaled_gaussian(x, y), x)
    model = Variational(strategy(x[:INDUCING], kind, distribution), kernel)
    natural = distribution is NaturalVariationalDistribution
    return variational(model, likelihood(), x, y, new_x, new_y, objective, natural)


def nearest_neighbors(line: Line) -> Task:
    """Each row given those near it."""
    x, y, new_x, new_y = rows(2, count=max(ROWS // 5, 20))

    def make(model: Any) -> Any:
        distribution = MeanFieldVariationalDistribution(len(x))
        return NNVariationalStrategy(model, x, distribution, k=16, training_batch_size=len(x))

    likelihood = GaussianLikelihood()
    model = Variational(make, line(scaled_gaussian(x, y), x))
    task = variational(model, likelihood, x, y, new_x, new_y)

    def train(steps: int) -> None:
        task.model.train()
        bound = VariationalELBO(likelihood, model, num_data=len(y))

        def loss() -> Tensor:
            found = model.variational_strategy(x=None, prior=False)
            return -bound(found, y[model.variational_strategy.current_training_indices])

        adam(task.model.parameters(), loss, steps)

    return dataclasses.replace(task, train=train)


class Uncertain(Variational):
    """The notebook's inputs with a standard deviation: those of every call are drawn."""

    def __call__(self, inputs: Tensor, *args: Any, **options: Any) -> Any:
        """The posterior at drawn inputs."""
        drawn = inputs + 0.01 * torch.randn_like(inputs) if self.training else inputs
        return super().__call__(drawn, *args, **options)


def uncertain(line: Line) -> Task:
    """Inputs that are not known exactly."""
    x, y, new_x, new_y = rows(1)
    model = Uncertain(strategy(x[:INDUCING]), line(scaled_gaussian(x, y), x))
    return variational(model, GaussianLikelihood(), x, y, new_x, new_y)


def svgp_multitask(line: Line) -> Task:
    """Outputs that are mixed from latent functions."""
    x, y, new_x, new_y = two_outputs()
    batch = torch.Size([2])

    def make(model: Any) -> Any:
        points = x[:INDUCING].expand(*batch, -1, -1).clone()
        inner = VariationalStrategy(model, points, CholeskyVariationalDistribution(INDUCING, batch_shape=batch))
        return LMCVariationalStrategy(inner, num_tasks=2, num_latents=2, latent_dim=-1)

    model = Variational(make, line(scaled_batch(), x), (2,))
    return variational(model, MultitaskGaussianLikelihood(num_tasks=2), x, y, new_x, new_y)


class LatentVariables(BayesianGPLVM):
    """The notebook's model of latent inputs."""

    def __init__(self, rows: int, outputs: int, line: Line) -> None:
        batch = torch.Size([outputs])
        points = torch.randn(*batch, INDUCING, 2)
        inner = VariationalStrategy(self, points, CholeskyVariationalDistribution(INDUCING, batch_shape=batch))
        prior = NormalPrior(torch.zeros(rows, 2), torch.ones(rows, 2))
        super().__init__(VariationalLatentVariable(rows, outputs, 2, torch.randn(rows, 2), prior), inner)
        self.mean_module = ZeroMean(batch_shape=batch)
        self.covar_module = line(ScaleKernel(RBFKernel(ard_num_dims=2)), input_dim=2)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at x."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def latent_variables(line: Line) -> Task:
    """Outputs whose inputs are learned; they are compared at the means of these."""
    _, y, *_ = two_outputs()
    y = y[:100]
    model, likelihood = LatentVariables(len(y), 2, line), GaussianLikelihood(batch_shape=torch.Size([2]))
    both = torch.nn.ModuleDict({"model": model, "likelihood": likelihood})

    def train(steps: int) -> None:
        both.train()
        bound = VariationalELBO(likelihood, model, num_data=len(y))
        adam(both.parameters(), lambda: -bound(model(model.sample_latent_variable()), y.mT).sum(), steps)

    def latent() -> Any:
        both.eval()
        return model(model.X.q_mu)

    return Task(both, train, latent, lambda: likelihood(latent()), y.mT)


# Deep models


def deep(line: Line, layer: Any = DeepGPLayer, whole: Any = DeepGP) -> Task:
    """Two layers; a model of functions that are drawn, compared by means and variances over the draws."""
    x, y, new_x, new_y = rows(2)
    sites = {"num_quad_sites": 4} if whole is DSPP else {}
    base = DSPPLayer if whole is DSPP else layer

    class Layer(base):  # type: ignore[misc, valid-type]
        def __init__(self, inputs: int, outputs: int | None) -> None:
            batch = torch.Size([] if outputs is None else [outputs])
            points = torch.randn(*batch, INDUCING, inputs)
            kind = MeanFieldVariationalDistribution if whole is DSPP else CholeskyVariationalDistribution
            inner = VariationalStrategy(self, points, kind(INDUCING, batch_shape=batch))
            super().__init__(inner, inputs, outputs, **sites)
            self.mean_module = ConstantMean(batch_shape=batch)
            self.covar_module = line(
                ScaleKernel(RBFKernel(batch_shape=batch, ard_num_dims=inputs), batch_shape=batch), input_dim=inputs
            )

        def forward(self, x: Tensor) -> MultivariateNormal:
            return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    class Deep(whole):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__(*([4] if sites else []))
            self.hidden, self.last, self.likelihood = Layer(2, 2), Layer(2, None), GaussianLikelihood()

        def forward(self, x: Tensor) -> MultivariateNormal:
            return self.last(self.hidden(x))

    model = Deep()

    def train(steps: int) -> None:
        model.train()
        kind = DeepPredictiveLogLikelihood(model.likelihood, model, len(y), beta=0.05) if sites else None
        bound = kind or DeepApproximateMLL(VariationalELBO(model.likelihood, model, len(y)))
        adam(model.parameters(), lambda: -bound(model(x), y), steps)

    def moments(found: Any) -> Any:
        mean = found.mean.mean(0)
        return torch.distributions.Normal(mean, (found.variance + found.mean.square()).mean(0).sub(mean**2).sqrt())

    def latent() -> Any:
        model.eval()
        torch.manual_seed(0)
        return moments(model(new_x))

    def observed() -> Any:
        found = latent()
        return torch.distributions.Normal(found.mean, (found.variance + model.likelihood.noise).sqrt())

    return Task(model, train, latent, observed, new_y)


class DeepKernel(ExactGP):
    """A network before the kernel."""

    def __init__(self, x: Tensor, y: Tensor, kernel: Any) -> None:
        super().__init__(x, y, GaussianLikelihood())
        self.mean_module, self.covar_module = ConstantMean(), kernel
        self.network = torch.nn.Sequential(torch.nn.Linear(4, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
        self.bounds = gpytorch.utils.grid.ScaleToBounds(-1.0, 1.0)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at x."""
        places = self.bounds(self.network(x))
        return MultivariateNormal(self.mean_module(places), self.covar_module(places))


def deep_kernel(line: Line) -> Task:
    """Deep kernel learning."""
    x, y, new_x, new_y = rows(4)
    return exact(DeepKernel(x, y, line(ScaleKernel(RBFKernel(ard_num_dims=2)), input_dim=2)), new_x, new_y)


# Pyro


def cox_process(line: Line) -> Task:
    """Counts whose log rate is a function, by a variational model of Pyro."""
    import pyro

    generator = torch.Generator().manual_seed(0)
    x = torch.linspace(0.0, 1.0, 100).unsqueeze(-1)
    y = torch.poisson((1.0 + function(x)).exp(), generator=generator)

    class Model(gpytorch.models.PyroGP):
        def __init__(self) -> None:
            points = torch.linspace(0.0, 1.0, INDUCING).unsqueeze(-1)
            inner = VariationalStrategy(self, points, CholeskyVariationalDistribution(INDUCING))
            likelihood = rfgp.likelihoods.PoissonLikelihood()
            super().__init__(inner, likelihood, num_data=len(y))
            self.mean_module, self.covar_module = ConstantMean(), line(scaled_gaussian(x, y), x, width=50)

        def forward(self, x: Tensor) -> MultivariateNormal:
            return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    model = Model()

    def train(steps: int) -> None:
        model.train()
        pyro.clear_param_store()
        elbo = pyro.infer.Trace_ELBO(num_particles=4, vectorize_particles=True, retain_graph=True)
        descent = pyro.infer.SVI(model.model, model.guide, pyro.optim.Adam({"lr": 0.05}), elbo)
        for _ in range(steps):
            model.zero_grad()
            descent.step(x, y)

    def latent() -> Any:
        model.eval()
        return model(x)

    def observed() -> Any:
        found = latent()
        return torch.distributions.Poisson((found.mean + 0.5 * found.variance).exp())

    return Task(model, train, latent, observed, y)


# Advanced usage


def batch_mode(line: Line) -> Task:
    """Several independent problems at once."""
    x, y, new_x, new_y = rows(1)
    y, new_y = (torch.stack([part, -part]) for part in (y, new_y))
    x, new_x = (part.expand(2, -1, -1) for part in (x, new_x))
    batch = torch.Size([2])
    model = ExactModel(x, y, GaussianLikelihood(batch_shape=batch), line(scaled_batch(), x[0]))
    return exact(model, new_x, new_y)


class Derivatives(ExactGP):
    """Values and gradients."""

    def __init__(self, x: Tensor, y: Tensor, kernel: Any) -> None:
        super().__init__(x, y, MultitaskGaussianLikelihood(num_tasks=y.shape[-1]))
        self.mean_module, self.covar_module = ConstantMeanGrad(), kernel

    def forward(self, x: Tensor) -> MultitaskMultivariateNormal:
        """The prior at x."""
        return MultitaskMultivariateNormal(self.mean_module(x), self.covar_module(x))


def derivatives(dim: int, line: Line) -> Task:
    """Observed gradients, with the kernel that the page names in place of GPyTorch's."""
    x, _, new_x, _ = rows(dim, count=ROWS // 5)
    found = []
    for seed, part in enumerate((x, new_x)):
        inputs = part.clone().requires_grad_()
        values = function(inputs)
        (gradient,) = torch.autograd.grad(values.sum(), inputs)
        clean = torch.cat([values.detach().unsqueeze(-1), gradient], -1)
        found.append(clean + NOISE * torch.randn(clean.shape, generator=torch.Generator().manual_seed(seed)))
    base = RBFKernelGrad() if line.method is None else LinearlyObservedKernel(RBFKernel(), [Value(), Gradient()])
    return exact(Derivatives(x, found[0], line(ScaleKernel(base), x)), new_x, found[1])


def as_it_is(make: Callable[[], Kernel], line: Line) -> Task:
    """A kernel of several outputs without a family."""
    x, *_ = rows(2)
    return exact(Derivatives(x, torch.zeros(len(x), 3), line(make(), x)), x, torch.zeros(len(x), 3))


def of(function: Callable[..., Task], *arguments: Any, **options: Any) -> Callable[[Line], Task]:
    """A notebook with settings."""
    return functools.partial(function, *arguments, **options)


NOTEBOOKS: dict[str, Callable[[Line], Task]] = {
    "Hyperparameters": hyperparameters,
    "Implementing_a_custom_Kernel": of(of_kernel, lambda *_: SincKernel(), 1),
    "Saving_and_Loading_Models": saved,
    "kernels_with_additive_structure": of(by_column, "sum"),
    "kernels_with_product_structure": of(by_column, "prod"),
    "Simple_GP_Regression": simple,
    "GP_Regression_Fully_Bayesian": fully_bayesian,
    "GP_Regression_DistributionalKernel": distributions,
    "GP_Regression_on_Classification_Labels": labels,
    "Spectral_Mixture_GP_Regression": of(of_kernel, mixture, 1),
    "Spectral_Delta_GP_Regression": of(of_kernel, deltas, 1),
    "polynomial kernel": of(of_kernel, lambda *_: ScaleKernel(PolynomialKernel(power=4)), 2),
    "fixed noise": fixed_noise,
    "KISSGP_Regression, Grid_GP_Regression": of(of_kernel, scaled_gaussian, 2),
    "KeOps_GP_Regression": of(of_kernel, lambda *_: ScaleKernel(MaternKernel(2.5)), 3),
    "SGPR_Regression, Kernel_Interpolation_for_Products": of(of_kernel, scaled_gaussian, 4),
    "Simple_GP_Regression_With_LOVE": settings(fast_pred_var=True, fast_pred_samples=True),
    "Exact_GP_Posterior_Sampling_with_CIQ": settings(ciq_samples=True),
    "Multitask_GP_Regression": multitask,
    "linear model of coregionalization": of(multitask, make=lcm),
    "missing observations": of(multitask, is_partly_missing=True),
    "Batch_Independent_Multioutput_GP": batch_independent,
    "Hadamard_Multitask_GP_Regression": hadamard,
    "ModelList_GP_Regression": model_list,
    "SVGP_Regression": svgp,
    "Approximate_GP_Objective_Functions": of(svgp, objective=PredictiveLogLikelihood),
    "Modifying_the_variational_strategy": of(svgp, distribution=MeanFieldVariationalDistribution),
    "Natural_Gradient_Descent": of(svgp, distribution=NaturalVariationalDistribution),
    "SVGP_CIQ": of(svgp, kind=CiqVariationalStrategy, distribution=NaturalVariationalDistribution),
    "Non_Gaussian_Likelihoods, PolyaGamma": of(svgp, likelihood=BernoulliLikelihood, is_binary=True),
    "Student's t noise": of(svgp, likelihood=StudentTLikelihood),
    "SVGP_Multitask_GP_Regression": svgp_multitask,
    "VNNGP": nearest_neighbors,
    "GP_Regression_with_Uncertain_Inputs": uncertain,
    "Gaussian_Process_Latent_Variable_Models": latent_variables,
    "Deep_Gaussian_Processes": deep,
    "Deep_Sigma_Point_Processes": of(deep, whole=DSPP),
    "Deep_Kernel_Regression": deep_kernel,
    "Cox_Process_Example": cox_process,
    "Simple_Batch_Mode_GP_Regression": batch_mode,
    "Derivative_Information_1d": of(derivatives, 1),
    "Derivative_Information_2d": of(derivatives, 2),
    "RBFKernelGrad as it is": of(as_it_is, lambda: ScaleKernel(RBFKernelGrad())),
}
"""The models by the names of the notebooks that they are from."""


def scores(observed: Any, truth: Tensor) -> dict[str, float]:
    """Errors of held-out observations, and the share inside of 95 % intervals where these are normal."""
    if isinstance(observed, torch.distributions.Categorical):
        wrong = (observed.probs.argmax(-1) != truth).double().mean()
        return {"error rate": float(wrong), "nlpd": float(-observed.log_prob(truth).mean())}
    if isinstance(observed, torch.distributions.Bernoulli):
        wrong = ((observed.probs > 0.5) != (truth > 0.5)).double().mean()
        return {"error rate": float(wrong), "nlpd": float(-observed.log_prob(truth).mean())}
    error = observed.mean - truth
    if isinstance(observed, torch.distributions.Poisson):
        return {"rmse": float(error.square().mean().sqrt()), "nlpd": float(-observed.log_prob(truth).mean())}
    mean, deviation = observed.mean, observed.variance.sqrt()
    normal = torch.distributions.Normal(mean, deviation)
    return {
        "rmse": float(error.square().mean().sqrt()),
        "nlpd": float(-normal.log_prob(truth).mean()),
        "coverage": float((error.abs() < 1.96 * deviation).double().mean()),
    }


def trained(name: str, method: str | None, steps: int) -> tuple[Line, Task, dict[str, float]]:
    """A model that was trained, with its scores and processor seconds."""
    torch.manual_seed(0)
    line, began = Line(method), time.process_time()
    task = NOTEBOOKS[name](line)
    task.train(steps)
    with torch.no_grad():
        found = scores(task.observed(), task.truth)
    return line, task, found | {"seconds": time.process_time() - began}


def distance(name: str, method: str, line: Line, known: Task) -> dict[str, float]:
    """How far the posterior of a new model with the parameters of the exact one is from that of the exact one."""
    torch.manual_seed(0)
    own = Line(method)
    task = NOTEBOOKS[name](own)
    task.take(own, known, line)
    with torch.no_grad():
        pair = task.latent(), known.latent()
        found, right = (torch.distributions.Normal(part.mean, part.variance.sqrt()) for part in pair)
        return {
            "nats a value": float(torch.distributions.kl_divergence(found, right).mean()),
            "mean": float(((found.mean - right.mean) / right.stddev).abs().max()),
            "deviation": float((found.stddev / right.stddev - 1.0).abs().max()),
        }


def measured(name: str, steps: int) -> dict[str, Any]:
    """A notebook without our line and with it; or what it says."""
    with warnings.catch_warnings(), gpytorch.settings.fast_computations(False, False, False):
        warnings.simplefilter("ignore")
        line, known, right = trained(name, None, steps)
        try:
            found = trained(name, "auto", steps)[2]
        except (ValueError, RuntimeError, AttributeError, TypeError) as error:
            return {"exact": right, "message": f"{type(error).__name__}: {error}"}
        cell = {"exact": right, "approximated": found, "auto": distance(name, "auto", line, known)}
        with contextlib.suppress(ValueError):  # a kernel of several outputs, or without the inputs that it sees
            cell["landmarks"] = distance(name, "landmarks", line, known)
        return cell


def claims(result: dict[str, Any]) -> dict[str, Any]:
    """The notebooks that work, as a table, and what the others say."""
    table = {name: row(cell) for name, cell in result["cells"].items() if "message" not in cell}
    refused = {name: cell["message"] for name, cell in result["cells"].items() if "message" in cell}
    return {"work": len(table), "of": len(result["cells"]), "table": table, "refused": refused}


def row(cell: dict[str, Any]) -> dict[str, str]:
    """What the page shows of a notebook: exact / approximated."""

    def both(name: str, form: str) -> str:
        values = [cell[part].get(name) for part in ("exact", "approximated")]
        return "" if None in values else " / ".join(format(value, form) for value in values)

    distances = {part: f"{cell[part]['nats a value']:.1g}" if part in cell else "" for part in ("auto", "landmarks")}
    error = both("rmse", ".3f") or both("error rate", ".1%")
    others = {"nlpd": both("nlpd", ".2f"), "coverage": both("coverage", ".2f"), "seconds": both("seconds", ".1f")}
    return distances | {"error": error} | others


def run(options: argparse.Namespace) -> None:
    """Measure what an earlier run has not."""
    torch.set_default_dtype(torch.float64)
    steps = QUICK_STEPS if options.quick else STEPS
    common.run_cells(options, [(name, functools.partial(measured, name, steps)) for name in NOTEBOOKS], claims)


def main() -> None:
    """Measure."""
    run(common.arguments(__doc__ or "", "gpytorch_notebooks").parse_args())


if __name__ == "__main__":
    main()
