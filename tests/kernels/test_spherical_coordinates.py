"""Kernels of latitude and longitude: functions of the great circle between points, without a date line and poles."""

import gpytorch
import pytest
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

import rfgp
from rfgp.kernels import InputTransformKernel, SphericalCoordinates


def places(count, seed=0):
    """Latitudes and longitudes, uniform on the sphere, (count, 2)."""
    uniform = torch.rand(count, 2, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))
    return torch.stack([torch.rad2deg(torch.asin(2.0 * uniform[:, 0] - 1.0)), 360.0 * uniform[:, 1] - 180.0], dim=-1)


def angles(first, second):
    """The angles (N,) between places, by the haversine formula."""
    (lat, lon), (lat2, lon2) = (torch.deg2rad(rows).unbind(-1) for rows in (first, second))
    haversine = ((lat - lat2) / 2).sin().square() + lat.cos() * lat2.cos() * ((lon - lon2) / 2).sin().square()
    return 2.0 * torch.asin(haversine.sqrt())


def on_sphere(base=None):
    base = MaternKernel(nu=1.5) if base is None else base
    return ScaleKernel(InputTransformKernel(base, SphericalCoordinates())).double()


@pytest.mark.smoke
def test_distances_are_chords_of_great_circles():
    first, second = places(200), places(200, seed=1)
    chords = (SphericalCoordinates()(first) - SphericalCoordinates()(second)).norm(dim=-1)
    torch.testing.assert_close(chords, 2.0 * (angles(first, second) / 2.0).sin(), rtol=0.0, atol=1e-12)


def test_the_date_line_is_no_border_and_a_pole_is_one_place():
    kernel = on_sphere()
    east, west = (torch.tensor([[20.0, degrees]], dtype=torch.float64) for degrees in (180.0, -180.0))
    poles = torch.stack([torch.full((8,), 90.0), torch.linspace(-180.0, 180.0, 8)], dim=-1).double()
    with torch.no_grad():
        torch.testing.assert_close(kernel(east, places(50)).to_dense(), kernel(west, places(50)).to_dense())
        variance = kernel.outputscale.expand(8, 8)
        torch.testing.assert_close(kernel(poles).to_dense(), variance, rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("base", [MaternKernel(nu=0.5), MaternKernel(nu=2.5), RBFKernel()], ids=["1/2", "5/2", "RBF"])
def test_kernels_are_positive_definite_with_long_lengthscales_too(base):
    base.lengthscale = 2.0
    with torch.no_grad():
        eigenvalues = torch.linalg.eigvalsh(on_sphere(base)(places(150)).to_dense())
    assert float(eigenvalues[0]) > -1e-12 * float(eigenvalues[-1])


def test_random_features_are_unbiased():
    x, kernel = places(20), on_sphere()
    with torch.no_grad():
        drawn = [
            rfgp.approximate(kernel, 128, method="fourier", input_dim=2, seed=seed)(x).to_dense() for seed in range(40)
        ]
        estimates, exact = torch.stack(drawn), kernel(x).to_dense()
    errors = (estimates.mean(0) - exact).abs() / (estimates.std(0) / 40**0.5 + 1e-12)
    pairs = torch.triu_indices(20, 20, offset=1)
    assert float(errors[*pairs].max()) < 4.5


def test_other_columns_pass_through_for_batches_too():
    x = torch.cat([torch.arange(20.0).unsqueeze(-1).double(), places(20).flip(-1)], dim=-1)
    found = SphericalCoordinates(latitude=2, longitude=1)(x.expand(3, 20, 3))
    assert torch.equal(found[..., :3], SphericalCoordinates()(places(20)).expand(3, 20, 3))
    assert torch.equal(found[..., 3], x[:, 0].expand(3, 20))


def test_gradients_in_degrees_are_those_of_differences_and_finite_at_poles():
    x = torch.cat([places(5), torch.tensor([[90.0, 10.0], [-90.0, 180.0]], dtype=torch.float64)]).requires_grad_(True)

    def slopes(values):
        return torch.autograd.grad(SphericalCoordinates()(values)[:, 2].sum(), values)[0]

    latitude = torch.deg2rad(x.detach()[:, 0])
    torch.testing.assert_close(slopes(x)[:, 0], latitude.cos() * torch.pi / 180.0, rtol=0.0, atol=1e-12)
    # A kernel whose gradient is smooth has finite slopes of predictions at a pole, where longitude has no say.
    kernel = on_sphere(RBFKernel())
    gradient = torch.autograd.grad(kernel(x, places(4, seed=2)).to_dense().sum(), x)[0]
    assert bool(gradient.isfinite().all())
    torch.testing.assert_close(gradient[-2:, 1], torch.zeros(2, dtype=torch.float64), rtol=0.0, atol=1e-12)


@pytest.mark.parametrize("method", ["fourier_orthogonal", "landmarks"])
def test_predictions_across_the_date_line_and_a_file_keeps_them(method, tmp_path):
    x = places(400)
    vector = SphericalCoordinates()(x)
    y = torch.sin(3.0 * vector[:, 0]) + vector[:, 2]
    kernel = rfgp.approximate(on_sphere(RBFKernel()), 128, method=method, train_inputs=x, seed=0)
    likelihood = gpytorch.likelihoods.GaussianLikelihood().double()
    likelihood.noise = 1e-3
    model = rfgp.WeightSpaceGP(kernel, likelihood).condition(x, y)
    border = torch.tensor([[10.0, 180.0], [10.0, -180.0], [90.0, 0.0], [90.0, 140.0]], dtype=torch.float64)
    with torch.no_grad():
        mean = model.posterior(border).mean
    torch.testing.assert_close(mean[::2], mean[1::2], rtol=0.0, atol=1e-10)
    wanted = SphericalCoordinates()(border)
    assert float((mean - torch.sin(3.0 * wanted[:, 0]) - wanted[:, 2]).abs().max()) < 0.05
    rfgp.save(model, tmp_path / "model.rfgp")
    assert torch.equal(rfgp.load(tmp_path / "model.rfgp").posterior(border).mean, mean)


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ([91.0, 0.0], "latitude in degrees from -90 to 90, got 91"),
        ([0.0, 361.0], "longitude in degrees from -360 to 360, got 361"),
        ([float("nan"), 0.0], "latitude in degrees"),
        ([0.0], "columns 0 and 1, got 1 columns"),
    ],
    ids=["latitude", "longitude", "NaN", "a column"],
)
def test_values_out_of_range_are_refused(row, told):
    with pytest.raises(ValueError, match=told):
        SphericalCoordinates()(torch.tensor([row, row]))


@pytest.mark.parametrize("columns", [(0, 0), (-1, 0), (0, 1.5), (0, True)], ids=str)
def test_columns_are_two_different_numbers(columns):
    with pytest.raises(ValueError, match="column"):
        SphericalCoordinates(*columns)
