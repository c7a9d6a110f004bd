"""What a model of a table chooses on held-out rows: effects of levels, and noise that depends on the inputs."""

from __future__ import annotations

import numpy as np
import pandas
import torch

import rfgp
from rfgp.averaging import AveragedGP
from rfgp.sklearn import RandomFeatureGPRegressor
from rfgp.sklearn.kernels import kernel_of_levels
from rfgp.study.tables import TableModel, choices, read
from rfgp.study.tables.spread import Spread, learned_spreads
from rfgp.training.timing import NEVER


def shops(num_rows=300, num_shops=60):
    rng = np.random.default_rng(0)
    shop, size = rng.integers(num_shops, size=num_rows), rng.uniform(size=num_rows)
    sales = rng.normal(size=num_shops)[shop] + size + 0.1 * rng.normal(size=num_rows)
    return pandas.DataFrame({"shop": [f"S{number}" for number in shop], "size": size, "sales": sales})


def test_text_of_many_values_has_random_effects(tmp_path, monkeypatch):
    monkeypatch.setattr(choices, "_EVALUATIONS", 20)
    frame = shops()
    model = TableModel.fit(read(frame, "sales"), seed=1)
    (_, linear), (_, boosting) = [(other.name, other.error[0]) for other in model.scores.others]
    assert model.scores.error[0] < 0.8 * min(linear, boosting)
    assert "shop has a random effect for each of its 60 values" in model.report()
    assert isinstance(model.model, rfgp.WeightSpaceGP)  # no average, whose intervals of other shops are too narrow
    new = frame[:2].assign(shop=["S1", "another"])
    known, unseen = model.predict(new)["sales_sd"]
    assert unseen > 3.0 * known and model.predict(new)["unseen"].tolist() == ["", "shop=another"]
    model.save(tmp_path / "model.pt")
    assert rfgp.load(tmp_path / "model.pt").predict(new).equals(model.predict(new))


def test_the_kernel_of_levels_is_a_sum_over_groups():
    x = torch.tensor([[0.3, 1.0, 0.0], [0.7, 1.0, 0.0], [0.3, 0.0, 1.0], [0.9, 0.0, 0.0]]).double() * 4.0
    kernel = kernel_of_levels("rbf", 3, [[1, 2]])
    smooth, effect = kernel.kernels
    with torch.no_grad():
        expected = smooth(x).to_dense() + effect.outputscale * torch.tensor(
            [[1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0], [0.0, 0.0, 0.0, 1.0]]
        )
        assert torch.allclose(kernel(x).to_dense(), expected, atol=1e-6)


def test_a_factor_of_deviations_is_learned_where_errors_grow():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(300, 2, generator=generator).double()
    z = torch.randn(300, generator=generator).double()
    truth = 0.3 + 2.0 * x[:, 0]
    spread = Spread.learned(x, x[:, 1], truth * z, (0,), NEVER, 0)
    assert spread is not None and float((spread(x, x[:, 1]) / truth).log().square().mean().sqrt()) < 0.3
    assert Spread.learned(x, x[:, 1], z, (0,), NEVER, 0) is None


def test_the_noise_of_an_average_may_depend_on_the_inputs(tmp_path):
    rng = np.random.default_rng(0)
    u = rng.uniform(size=(260, 2))
    frame = pandas.DataFrame({"u": u[:, 0], "v": u[:, 1], "y": u[:, 0] + (0.05 + u[:, 1] ** 2) * rng.normal(size=260)})
    model = TableModel.fit(read(frame, "y"))
    assert isinstance(model.model, AveragedGP) and "the noise of y depends on the inputs" in model.report()
    found = model.predict(pandas.DataFrame({"u": [0.5, 0.5], "v": [0.05, 0.95]}))
    assert found["y_sd"][1] > 4.0 * found["y_sd"][0]
    model.save(tmp_path / "model.pt")
    assert rfgp.load(tmp_path / "model.pt").predict(frame).equals(model.predict(frame))


def test_rows_that_come_again_do_not_tell_their_errors():
    """The prediction of a row by the others with its inputs is high where the row is low."""
    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.choice(4, size=(320, 1), p=[0.5, 0.3, 0.15, 0.05]).astype(float))
    y = torch.tensor([1.0, 1.0, 6.0, 4.0]).double()[x[:, 0].long()] + torch.from_numpy(0.1 * rng.normal(size=320))
    estimator = RandomFeatureGPRegressor("rbf", random_state=0).fit(x.numpy(), y.numpy())
    assert learned_spreads(estimator, x, y, (0,), NEVER, 0) == [None]


def test_errors_are_in_deviations_of_normals_where_an_estimator_has_tails(monkeypatch):
    """Tables learn noise from errors in deviations of the model, without the tails and widths of predictions."""
    random, seen = np.random.default_rng(0), []
    x = random.uniform(-2.0, 2.0, (300, 1))
    y = np.sin(x[:, 0]) + 0.2 * random.standard_t(2.0, 300)
    estimator = RandomFeatureGPRegressor("rbf", average=False, max_evaluations=10, random_state=0).fit(x, y)
    assert estimator.tail_degrees_[0] <= 3.0
    monkeypatch.setattr(Spread, "learned", lambda x, mean, errors, *_: seen.append(errors))
    learned_spreads(estimator, torch.from_numpy(x), torch.from_numpy(y), (0,), NEVER, 0)
    with torch.no_grad():
        left_out = estimator.model_.leave_one_out(*estimator._model_rows(x, y))
        noise = estimator.model_.likelihood.noise
    errors = (estimator._model_rows(x, y)[1] - left_out.mean) / (left_out.latent_variance + noise).sqrt()
    torch.testing.assert_close(seen[0], errors.detach(), rtol=1e-6, atol=1e-9)
