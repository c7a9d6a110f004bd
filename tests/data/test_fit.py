"""Sources and loaders in the place of tensors."""

from __future__ import annotations

import functools

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch
from gpytorch.kernels import MultitaskKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, MultitaskGaussianLikelihood
from torch.utils.data import DataLoader, TensorDataset

import rfgp
from rfgp.data import ArraySource, ParquetSource, sample
from rfgp.likelihoods import DirichletClassificationLikelihood
from rfgp.models import WeightSpaceGP

pytestmark = pytest.mark.usefixtures("float64_default")

ROWS = 200


def table():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(ROWS, 2, generator=generator)
    return x, torch.sin(x.sum(-1)) + 0.1 * torch.randn(ROWS, generator=generator)


def model_of(likelihood, exact=None):
    exact = ScaleKernel(RBFKernel()) if exact is None else exact
    return WeightSpaceGP(rfgp.approximate(exact, 32, input_dim=2, seed=0), likelihood)


def written(folder, **columns):
    x, y = table()
    named = {"a": x[:, 0].numpy(), "b": x[:, 1].numpy(), "y": y.numpy()}
    pa.parquet.write_table(pa.table({**named, **columns}), folder / "table.parquet", row_group_size=60)
    return folder / "table.parquet"


def check_equal(fitted, wanted, x):
    torch.testing.assert_close(fitted.posterior(x).mean, wanted.posterior(x).mean, rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(
        fitted.log_marginal_likelihood(), wanted.log_marginal_likelihood(), rtol=1e-10, atol=1e-9
    )


@pytest.mark.smoke
@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_and_sources_have_the_fit_of_tensors(workers, tmp_path):
    x, y = table()
    wanted = model_of(GaussianLikelihood()).condition(x, y)
    sources = [
        DataLoader(TensorDataset(x, y), batch_size=64, num_workers=workers),
        ParquetSource(written(tmp_path), ["a", "b"], "y", batch_size=32),
        ArraySource(x.numpy(), y.numpy(), batch_size=33),
    ]
    for source in sources:
        check_equal(model_of(GaussianLikelihood()).condition(source), wanted, x)
        assert sample(source, ROWS).num_rows == ROWS


def test_parts_add_up_to_the_whole(tmp_path):
    x, y = table()
    source = ParquetSource(written(tmp_path), ["a", "b"], "y", batch_size=32)
    first, *others = (model_of(GaussianLikelihood()).condition(part).statistics for part in source.partitions(3))
    for other in others:
        first = first.merge(other)
    check_equal(
        model_of(GaussianLikelihood()).load_statistics(first), model_of(GaussianLikelihood()).condition(x, y), x
    )


def test_known_noise_classes_and_missing_outputs(tmp_path):
    x, y = table()
    noise = 0.1 + y.square()
    gaps = [None if n % 3 == 0 else float(v) for n, v in enumerate(y)]
    path = written(tmp_path, noise=noise.numpy(), label=(y > 0).numpy(), gaps=gaps)
    read = functools.partial(ParquetSource, path, ["a", "b"], batch_size=32)
    fitted = model_of(FixedNoiseGaussianLikelihood(noise)).condition(read("y", "noise"))
    check_equal(fitted, model_of(FixedNoiseGaussianLikelihood(noise)).condition(x, y, noise), x)
    labels = read("label", target_dtype=torch.int64)
    fitted, wanted = (model_of(DirichletClassificationLikelihood(num_classes=2)) for _ in range(2))
    fitted.condition(labels), wanted.condition(x, (y > 0).long())
    torch.testing.assert_close(fitted.posterior(x).mean, wanted.posterior(x).mean, rtol=1e-9, atol=1e-9)
    outputs = torch.stack([y, torch.tensor([np.nan if v is None else v for v in gaps])], -1)
    exact = MultitaskKernel(RBFKernel(), num_tasks=2)
    fitted, wanted = (model_of(MultitaskGaussianLikelihood(2), exact) for _ in range(2))
    fitted.condition(read(["y", "gaps"])), wanted.condition(x, outputs)
    check_equal(fitted, wanted, x)


def test_parameters_are_learned_from_a_source(tmp_path):
    source = ParquetSource(written(tmp_path), ["a", "b"], "y", batch_size=64)
    models = model_of(GaussianLikelihood()), model_of(GaussianLikelihood())
    found = rfgp.fit(models[0], source, max_evaluations=20)
    wanted = rfgp.fit(models[1], *table(), max_evaluations=20, strategy="evidence")
    assert abs(found.log_marginal_likelihood - wanted.log_marginal_likelihood) < 1e-6


def test_inputs_alone_are_no_rows_to_fit():
    with pytest.raises(ValueError, match=r"expected batches .*, got inputs \(x,\) alone; .* targets"):
        model_of(GaussianLikelihood()).condition(ArraySource(table()[0]))
