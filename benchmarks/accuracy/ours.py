"""The methods of rfgp: estimators, and the fixed kernel of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import MaternKernel, PolynomialKernel, ScaleKernel
from gpytorch.likelihoods import BernoulliLikelihood
from gpytorch.means import ConstantMean
from torch.nn.functional import normalize

import rfgp
from rfgp.likelihoods import DirichletClassificationLikelihood, PoissonLikelihood
from rfgp.models import LaplaceGP
from rfgp.sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor

from .rows import Method, Predictions, Rows, all_classes


def estimator(**options: Any) -> Method:
    """An estimator with options, defaults else."""

    def fitted(rows: Rows) -> Iterator[tuple[str, Callable[[], Predictions]]]:
        if rows.num_classes:
            classifier = RandomFeatureGPClassifier(**{"random_state": 0, **options}).fit(rows.x, rows.y)
            yield "", lambda: all_classes(classifier.predict_proba(rows.test_x), classifier.classes_, rows.num_classes)
            return
        regressor = RandomFeatureGPRegressor(**{"random_state": 0, **options}).fit(rows.x, rows.y)

        def predict() -> Predictions:
            mean, deviation = regressor.predict(rows.test_x, return_std=True)
            return mean, deviation**2

        yield "", predict

    return fitted


def laplace(rows: Rows, width: int = 512) -> Iterator[tuple[str, Callable[[], Predictions]]]:
    """Counts or two classes by Laplace's approximation, tuned by :func:`rfgp.fit`."""
    x, test_x, y = (torch.from_numpy(part).double() for part in (rows.x, rows.test_x, rows.y))
    exact = ScaleKernel(MaternKernel(1.5, ard_num_dims=x.shape[1])).double()
    kernel = rfgp.approximate(exact, min(width, len(x)), method="landmarks", train_inputs=x, seed=0)
    likelihood = PoissonLikelihood() if rows.has_counts else BernoulliLikelihood()
    model = LaplaceGP(kernel, likelihood, ConstantMean().double(), block_size=256)
    rfgp.fit(model, x, y, progress=False)

    def predict() -> Predictions:
        with torch.no_grad():
            latent = model.posterior(test_x)
            if not rows.has_counts:
                positive = likelihood(latent).probs.numpy()
                return np.stack([1.0 - positive, positive], axis=-1)
            mean = (latent.mean + 0.5 * latent.variance).exp()
            return mean.numpy(), likelihood.log_marginal(torch.from_numpy(rows.test_y), latent).numpy()

    yield "", predict


def images(method: str, width: int) -> Method:
    """Dirichlet classification by v (1/2 + x.y/2)^3, whose parameters are given, in float32."""

    def fitted(rows: Rows) -> Iterator[tuple[str, Callable[[], Predictions]]]:
        x, test_x = (normalize(torch.from_numpy(part).float(), dim=-1) for part in (rows.x, rows.test_x))
        labels = torch.from_numpy(rows.y)
        exact = ScaleKernel(PolynomialKernel(power=3))
        likelihood = DirichletClassificationLikelihood(labels, 1e-3)
        exact.base_kernel.offset, exact.outputscale = 1.0, float(likelihood.transformed_targets.var()) / 8.0
        kernel = rfgp.approximate(exact, width, method=method, train_inputs=x, seed=0)
        model = rfgp.WeightSpaceGP(kernel, DirichletClassificationLikelihood(num_classes=rows.num_classes))
        held = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[: len(x) // 10]
        rest = torch.ones(len(x), dtype=torch.bool)
        rest[held] = False
        with torch.no_grad():
            model.condition(x[rest], labels[rest])
            model.likelihood.select_alpha_epsilon(model, x[held], labels[held], num_samples=64)
            model.update(x[held], labels[held])

        def predict() -> np.ndarray:
            with torch.no_grad():
                return model.likelihood.class_probabilities(model.posterior(test_x), 64).double().numpy()

        yield "", predict

    return fitted


ESTIMATORS: dict[str, Method] = {
    "rfgp, defaults": estimator(),
    **{f"rfgp, time limit {limit} s": estimator(time_limit=float(limit)) for limit in (5, 20, 60)},
}
NUMBERS: dict[str, Method] = {
    **ESTIMATORS,
    'rfgp, kernel="matern52"': estimator(kernel="matern52"),
    'rfgp, noise="student"': estimator(noise="student"),
    "rfgp, Fourier, D = 1024": estimator(method="fourier_orthogonal", num_features=1024, block_size=None),
    **{f"rfgp, landmarks, M = {width}": estimator(num_features=width, block_size=None) for width in (512, 1024)},
    **{
        f"rfgp, landmarks and blocks, M = {width}, B = {size}": estimator(num_features=width, block_size=size)
        for width, size in ((256, 128), (512, 256), (1024, 512))
    },
}
CLASSIFIERS: dict[str, Method] = {
    **ESTIMATORS,
    "rfgp, fallback": estimator(fallback=True),
}
TWO_CLASSES: dict[str, Method] = {"rfgp, LaplaceGP, M = 512, blocks of 256": laplace}
COUNTS: dict[str, Method] = {"rfgp, LaplaceGP, M = 512, blocks of 256": laplace}
IMAGES: dict[str, Method] = {
    **ESTIMATORS,
    **{f"rfgp, polynomial sketch, D = {width}": images("tensor_srht", width) for width in (512, 1024, 2048)},
    **{f"rfgp, polynomial landmarks, M = {width}": images("landmarks", width) for width in (1024, 2048)},
}
