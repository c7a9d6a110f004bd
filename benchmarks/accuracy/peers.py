"""What GPyTorch and scikit-learn offer for the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import (
    InducingPointKernel,
    Kernel,
    MaternKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import DirichletClassificationLikelihood, GaussianLikelihood, SoftmaxLikelihood
from gpytorch.variational import MeanFieldVariationalDistribution, NNVariationalStrategy
from gpytorch_models import SVGP, ExactModel
from sklearn.linear_model import BayesianRidge, LogisticRegression
from torch import Tensor

from .rows import Method, Predictions, Rows, all_classes, per_output, subset

Points = Iterator[tuple[str, Callable[[], Predictions]]]
CHUNK, ONE = 512, torch.Size([])


def gpytorch_kernel(name: str, dim: int, batch: torch.Size = ONE) -> Kernel:
    """A kernel with a lengthscale per column, which start at half the root of the dimension."""
    base = (
        RBFKernel(dim, batch_shape=batch) if name == "rbf" else MaternKernel(1.5, ard_num_dims=dim, batch_shape=batch)
    )
    base.lengthscale = 0.5 * dim**0.5
    return ScaleKernel(base, batch_shape=batch)


class Neighbors(gpytorch.models.ApproximateGP):
    """GPyTorch's VNNGP, whose inducing points are the rows."""

    def __init__(self, inducing: Tensor, kernel: Kernel, neighbors: int, batch: int) -> None:
        distribution = MeanFieldVariationalDistribution(len(inducing))
        strategy = NNVariationalStrategy(self, inducing, distribution, k=neighbors, training_batch_size=batch)
        super().__init__(strategy)
        self.mean_module, self.covar_module = gpytorch.means.ConstantMean(), kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        """The prior at x."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def __call__(self, x: Tensor | None, prior: bool = False, **options: Any) -> MultivariateNormal:
        """The prior or the posterior; without inputs those of the next batch."""
        return self.variational_strategy(x=x, prior=prior, **options)


def random_rows(x: Tensor, count: int) -> Tensor:
    """So many of the rows."""
    return x[torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[:count]].clone()


def softmax_average(mean: Tensor, variance: Tensor) -> np.ndarray:
    """Class probabilities (N, C) from latent marginals (C, N)."""
    draws = torch.randn(64, *mean.shape, generator=torch.Generator().manual_seed(0), dtype=mean.dtype)
    return (mean + variance.sqrt() * draws).softmax(-2).mean(0).mT.double().numpy()


def train_and_predict(model: ExactModel, likelihood: gpytorch.likelihoods.Likelihood, rows: Rows, steps: int) -> Points:
    """Adam at learning rate .1 on the marginal likelihood, and predictions in chunks; Cholesky factors throughout."""
    x, y = model.train_inputs[0], model.train_targets
    evidence = gpytorch.mlls.ExactMarginalLogLikelihood(likelihood, model)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
    with gpytorch.settings.max_cholesky_size(10**6):
        model.train()
        for _ in range(steps):
            optimizer.zero_grad()
            loss = -evidence(model(x), y).sum()
            loss.backward()
            optimizer.step()
        model.eval()
    test_x = torch.from_numpy(rows.test_x).to(x)

    def predict() -> Predictions:
        with torch.no_grad(), gpytorch.settings.max_cholesky_size(10**6):
            latent = [model(part) for part in test_x.split(CHUNK)]
            mean, variance = (torch.cat([getattr(p, k) for p in latent], -1) for k in ("mean", "variance"))
        if rows.num_classes:
            return softmax_average(mean, variance.clamp_min(0))
        return mean.numpy(), (variance + likelihood.noise).detach().numpy()

    yield "", predict


def exact(rows: Rows, count: int, steps: int) -> Points:
    """The exact model of a random subset."""
    few = subset(rows, count)
    x, y = torch.from_numpy(few.x), torch.from_numpy(few.y)
    batch = torch.Size([rows.num_classes] if rows.num_classes else [])
    kernel = gpytorch_kernel(rows.kernel, x.shape[-1], batch).double()
    if not rows.num_classes:
        likelihood = GaussianLikelihood().double()
        return train_and_predict(ExactModel(x, y, likelihood, kernel), likelihood, rows, steps)
    likelihood = DirichletClassificationLikelihood(y, learn_additional_noise=True).double()
    targets = likelihood.transformed_targets.double()
    kernel.outputscale = torch.full(batch, float(targets.var()))
    return train_and_predict(ExactModel(x, targets, likelihood, kernel), likelihood, rows, steps)


def sgpr(rows: Rows, inducing: int = 512, steps: int = 60) -> Points:
    """Titsias' sparse regression on all rows, with inducing inputs that are learned."""
    x, y, likelihood = torch.from_numpy(rows.x), torch.from_numpy(rows.y), GaussianLikelihood().double()
    kernel = gpytorch_kernel(rows.kernel, x.shape[-1]).double()
    kernel = InducingPointKernel(kernel, random_rows(x, inducing), likelihood)
    return train_and_predict(ExactModel(x, y, likelihood, kernel), likelihood, rows, steps)


def svgp(rows: Rows, rate: float, inducing: int, epochs: tuple[int, ...], batch: int = 256) -> Points:
    """SVGP by Adam in float32, which predicts after several numbers of epochs."""
    torch.manual_seed(0)
    x, test_x = torch.from_numpy(rows.x).float(), torch.from_numpy(rows.test_x).float()
    y = torch.from_numpy(rows.y) if rows.num_classes else torch.from_numpy(rows.y).float()
    latents = torch.Size([rows.num_classes] if rows.num_classes else [])
    model = SVGP(random_rows(x, inducing), gpytorch_kernel(rows.kernel, x.shape[-1], latents), rows.num_classes)
    is_classes = bool(rows.num_classes)
    softmax = SoftmaxLikelihood(num_classes=rows.num_classes, mixing_weights=False) if is_classes else None
    likelihood = GaussianLikelihood() if softmax is None else softmax
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=rate)

    def predict() -> Predictions:
        model.eval()
        with torch.no_grad():
            latent = [model(part) for part in test_x.split(CHUNK)]
            mean, variance = (torch.cat([getattr(p, k) for p in latent]).double() for k in ("mean", "variance"))
        model.train()
        if is_classes:
            return softmax_average(mean.mT, variance.mT)
        return mean.numpy(), (variance + likelihood.noise.double()).detach().numpy()

    for epoch in range(1, max(epochs) + 1):
        for part in torch.randperm(len(x)).split(batch):
            optimizer.zero_grad()
            loss = -bound(model(x[part]), y[part])
            loss.backward()
            optimizer.step()
        if epoch in epochs:
            yield f"{epoch} epochs" if epoch > 1 else "1 epoch", predict


def vnngp(rows: Rows, neighbors: int = 32, epochs: tuple[int, ...] = (5, 10, 20), batch: int = 256) -> Points:
    """Variational nearest neighbors by Adam in float32, rate .01, which predicts after several numbers of epochs."""
    torch.manual_seed(0)
    order = torch.randperm(len(rows.x))
    x, test_x = torch.from_numpy(rows.x).float()[order], torch.from_numpy(rows.test_x).float()
    y = torch.from_numpy(rows.y).float()[order]
    model = Neighbors(x, gpytorch_kernel(rows.kernel, x.shape[-1]), min(neighbors, len(x) - 1), batch)
    likelihood = GaussianLikelihood()
    bound = gpytorch.mlls.VariationalELBO(likelihood, model, num_data=len(x))
    optimizer = torch.optim.Adam([*model.parameters(), *likelihood.parameters()], lr=0.01)

    def predict() -> Predictions:
        model.eval()
        with torch.no_grad():
            latent = [model(part) for part in test_x.split(CHUNK)]
            mean, variance = (torch.cat([getattr(p, k) for p in latent]).double() for k in ("mean", "variance"))
        model.train()
        return mean.numpy(), (variance + likelihood.noise.double()).detach().numpy()

    for epoch in range(1, max(epochs) + 1):
        for _ in range(model.variational_strategy._total_training_batches):
            optimizer.zero_grad()
            latent = model(None)
            loss = -bound(latent, y[model.variational_strategy.current_training_indices])
            loss.backward()
            optimizer.step()
        if epoch in epochs:
            yield f"{epoch} epochs", predict


def linear(rows: Rows) -> Points:
    """Ridge regression with error bars, or logistic regression."""
    if rows.num_classes:
        classifier = LogisticRegression().fit(rows.x, rows.y)
        yield "", lambda: all_classes(classifier.predict_proba(rows.test_x), classifier.classes_, rows.num_classes)
        return
    model = BayesianRidge().fit(rows.x, rows.y)

    def predict() -> Predictions:
        mean, deviation = model.predict(rows.test_x, return_std=True)
        return mean, deviation**2

    yield "", predict


NUMBERS: dict[str, Method] = {
    name: per_output(method)
    for name, method in {
        "linear": linear,
        "exact, 2,000 rows": partial(exact, count=2000, steps=30),
        "SGPR, 512": sgpr,
        **{
            f"SVGP, 512, rate {rate}": partial(svgp, rate=rate, inducing=512, epochs=(5, 10, 20))
            for rate in (0.01, 0.03, 0.1)
        },
        "VNNGP, 32": vnngp,
    }.items()
}
"""What takes tables of numbers."""
CLASSES: dict[str, Method] = {
    "linear": linear,
    "exact, 1,000 rows": partial(exact, count=1000, steps=30),
    "SVGP, 128, rate 0.01": partial(svgp, rate=0.01, inducing=128, epochs=(1, 2, 5)),
}
