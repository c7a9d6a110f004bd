"""The methods of rfgp: estimators, and the fixed kernel of images."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
from gpytorch.kernels import PolynomialKernel, ScaleKernel

import rfgp
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.sklearn import RandomFeatureGPClassifier, RandomFeatureGPRegressor

from .rows import Method, Predictions, Rows


def estimator(**options: Any) -> Method:
    """An estimator with options, defaults else."""

    def fitted(rows: Rows) -> Iterator[tuple[str, Callable[[], Predictions]]]:
        if rows.num_classes:
            classifier = RandomFeatureGPClassifier(**{"kernel": rows.kernel, "random_state": 0, **options})
            classifier.fit(rows.x, rows.y)
            yield "", lambda: classifier.predict_proba(rows.test_x)
            return
        regressor = RandomFeatureGPRegressor(rows.kernel, random_state=0, **options).fit(rows.x, rows.y)

        def predict() -> Predictions:
            mean, deviation = regressor.predict(rows.test_x, return_std=True)
            return mean, deviation**2

        yield "", predict

    return fitted


def images(method: str, width: int) -> Method:
    """Dirichlet classification by v (1/2 + x.y/2)^3, whose parameters are given, in float32."""

    def fitted(rows: Rows) -> Iterator[tuple[str, Callable[[], Predictions]]]:
        x, test_x = (torch.from_numpy(part).float() for part in (rows.x, rows.test_x))
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


METHODS: dict[str, Method] = {
    "rfgp, defaults": estimator(),
    **{f"rfgp, time limit {limit} s": estimator(time_limit=float(limit)) for limit in (5, 20, 60)},
    **{
        f"rfgp, Fourier, D = {width}": estimator(method="fourier_orthogonal", num_features=width, block_size=None)
        for width in (512, 1024)
    },
    **{f"rfgp, landmarks, M = {width}": estimator(num_features=width, block_size=None) for width in (512, 1024, 2048)},
    **{
        f"rfgp, landmarks and blocks, M = {width}, B = {size}": estimator(num_features=width, block_size=size)
        for width, size in ((128, 128), (256, 128), (512, 256), (1024, 256), (1024, 512), (2048, 512))
    },
}
"""What takes tables of numbers."""
CLASSIFIERS: dict[str, Method] = {
    **{name: method for name, method in METHODS.items() if "blocks" not in name and "2048" not in name},
    "rfgp, polynomial sketch, D = 1024": estimator(
        kernel=ScaleKernel(PolynomialKernel(power=3)), method="tensor_srht", num_features=1024, time_limit=60.0
    ),
}
IMAGES: dict[str, Method] = {
    **{f"rfgp, polynomial sketch, D = {width}": images("tensor_srht", width) for width in (512, 1024, 2048)},
    "rfgp, optimized Maclaurin, D = 1024": images("optimized_maclaurin", 1024),
    **{f"rfgp, landmarks, M = {width}": images("landmarks", width) for width in (512, 1024, 2048)},
}
