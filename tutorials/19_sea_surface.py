# %% [markdown]
# # A million measurements of the sea surface, in seconds
#
# A satellite looks down on two stripes of the ocean, each 50 km wide, and measures how high the water stands: one
# number every 2 km, along and across, each wrong by some centimeters. In six days that makes a million numbers of a
# part of the sea, in which eddies of a hundred kilometers turn. Between the stripes there is nothing. **How high is
# the sea everywhere, how well is that known, and can a Gaussian process say so in the time that you wait for a page?**
#
# Random features and landmarks read all rows again for every step of training. Here there are two inputs, and in
# few inputs cosines and sines of **equispaced** frequencies do better: their sums over the rows know no lengthscale,
# no noise and not even the kernel. So rows are read once or twice, and then a step of training costs the same for a
# million of them as for a thousand.

# %%
import itertools
import math
import os
import time

import matplotlib.pyplot as plt
import torch
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import ConstantMean
from matplotlib.colors import LogNorm

import rfgp
from rfgp.data import GridSource

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
torch.set_default_dtype(torch.float64)
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})
BLUE, ORANGE, GREEN = "#0072B2", "#D55E00", "#009E73"

# %% [markdown]
# ## A simulated sea
#
# **All data on this page are simulated**, so that the truth is known: a box of longitudes and latitudes, laid out flat
# as 1200 km from west to east and 900 km from south to north, and in it 130 eddies, round hills and hollows of water
# of all heights. Their radius is 70 km for now; later it varies. Heights are in cm above the mean of many years.
# Nothing moves in the six days.

# %%
EAST, NORTH, NOISE = 1200.0, 900.0, 2.5  # km, km, cm


def simulated_sea(spread, seed):
    """Heights in cm at places (n, 2) in km, as a function; logarithms of radii have this deviation."""
    generator = torch.Generator().manual_seed(seed)
    number = 130
    centers = torch.rand(number, 2, generator=generator) * torch.tensor([EAST + 400.0, NORTH + 400.0]) - 200.0
    radii = 70.0 * (spread * torch.randn(number, generator=generator)).exp()
    tops = 12.0 * torch.randn(number, generator=generator)

    def height(places):
        total = torch.zeros(len(places))
        for center, radius, top in zip(centers, radii, tops, strict=True):
            total += top * torch.exp(-0.5 * (places - center).square().sum(-1) / radius**2)
        return total

    return height


# %% [markdown]
# ## A satellite that is not
#
# Its instrument is like that of SWOT, which has flown since 2022: it sees from 10 to 60 km to the left and to the
# right of its track. Tracks cross the box at 70 degrees, six from the south-west and five from the south-east, and are
# flown again every day. Between them are gaps of up to 200 km. The noise has a deviation of 2.5 cm.

# %%
TRACKS = [
    (torch.tensor([start, 0.0]), lean)  # where it enters, and whether it goes east or west
    for lean, starts in ((1.0, range(-350, 1350, 330)), (-1.0, range(70, 1450, 330)))
    for start in map(float, starts)
]
STEP, DAYS = (12.0, 1) if SHORT else (2.0, 6)
ANGLE = math.radians(70.0)


def along_and_across(lean):
    """The unit vectors along a track, and to the right of it."""
    along = torch.tensor([lean * math.cos(ANGLE), math.sin(ANGLE)])
    return along, torch.stack([along[1], -along[0]])


def measured(height, tracks, seed):
    """Places (n, 2), and what was measured there, (n,)."""
    generator = torch.Generator().manual_seed(seed)
    side = torch.arange(10.0, 60.0, STEP)
    pixels = torch.cartesian_prod(torch.arange(-100.0, 1100.0, STEP), torch.cat([-side, side]))
    parts = []
    for start, lean in tracks:
        along, across = along_and_across(lean)
        moved = pixels + STEP * torch.rand(2, generator=generator)
        places = start + moved[:, :1] * along + moved[:, 1:] * across
        parts.append(places[((places >= 0.0) & (places <= torch.tensor([EAST, NORTH]))).all(-1)])
    places = torch.cat(parts)
    return places, height(places) + NOISE * torch.randn(len(places), generator=generator)


def distance(places, tracks):
    """How far places are from the nearest stripe, in km."""
    found = []
    for start, lean in tracks:
        side = ((places - start) @ along_and_across(lean)[1]).abs()
        found.append(torch.maximum(side - 60.0, 10.0 - side).clamp_min(0.0))
    return torch.stack(found).amin(0)


height = simulated_sea(spread=0.0, seed=0)
x, y = measured(height, TRACKS * DAYS, seed=0)
print(f"{len(x):,} measurements, from {y.min():.0f} to {y.max():.0f} cm")

# %% [markdown]
# ## The model, and its seconds
#
# `method="fourier_grid"` is all that differs from other features. It wants to see the inputs, because frequencies are
# spaced for the box in which these lie. `rfgp.fit` first learns from 500 rows which frequencies it will need, and
# then sums all rows for these, by a non-uniform fast Fourier transform where `finufft` is installed
# (`pip install rfgp[grid]`). Every evaluation of the likelihood of all rows, with its gradient, is made from these
# sums.

# %%
WIDTH, MORE, EVALUATIONS = (41, 61, 3) if SHORT else (601, 1801, 60)


def fitted(base, num_features, x, y):
    """A model of all measurements, and the seconds of the processor that it took."""
    start = time.process_time()
    exact = ScaleKernel(base)
    exact.base_kernel.lengthscale = 100.0  # km, where training begins
    kernel = rfgp.approximate(exact, num_features, method="fourier_grid", train_inputs=x)
    model = rfgp.WeightSpaceGP(kernel, GaussianLikelihood(), ConstantMean())
    summary = rfgp.fit(model, x, y, max_evaluations=EVALUATIONS, progress=False)
    return model, summary, time.process_time() - start


def heights_of(model, places):
    """Means and standard deviations of the height."""
    with torch.no_grad():
        posterior = model.posterior(places)
        return posterior.mean, posterior.stddev


fitted(RBFKernel(), 5, x[:200], y[:200])  # which loads libraries, and is not to be counted
model, summary, seconds = fitted(RBFKernel(), WIDTH, x, y)
print(summary)

places = torch.rand(1000 if SHORT else 20_000, 2, generator=torch.Generator().manual_seed(1)) * torch.tensor(
    [EAST, NORTH]
)
truth = height(places)
start = time.process_time()
mean, deviation = heights_of(model, places)
predicting = time.process_time() - start
print(f"processor seconds: {seconds:.1f} for the fit, {predicting:.1f} for {len(places):,} predictions")
few, _, less = fitted(RBFKernel(), WIDTH, x[::10], y[::10])
print(f"the fit to a tenth of the measurements: {less:.1f}")

# %% [markdown]
# Eddies of radius r at random places have the covariance of a Gaussian kernel with lengthscale √2 r, here 99 km. It is
# found, and so is the noise of 6.25 cm². A tenth of the rows takes not a tenth of the time, but nearly all of it: most
# of the work is on frequencies, not on rows.
#
# ## A map
#
# A map with a point for every km has a million pixels. A `GridSource` makes them as they are wanted, and since
# frequencies and pixels are both equispaced, a pixel costs a few products, for mean and variance.

# %%
pixel = 20.0 if SHORT else 1.0
axes_of_map = [torch.arange(0.0, EAST, pixel), torch.arange(0.0, NORTH, pixel)]
grid = GridSource(axes_of_map)
start = time.process_time()
chart = rfgp.predict_map(model, grid, progress=False)
print(f"{grid.num_rows:,} pixels with error bars: {time.process_time() - start:.1f} s")
mean_map, deviation_map = chart.mean.reshape(grid.shape), chart.variance.sqrt().reshape(grid.shape)

frame = {"extent": (0.0, EAST, 0.0, NORTH), "origin": "lower"}
figure, axes = plt.subplots(1, 3, figsize=(13.5, 3.6), layout="constrained", sharey=True)
shown = torch.randperm(len(x), generator=torch.Generator().manual_seed(2))[:30_000]
dots = axes[0].scatter(*x[shown].T, c=y[shown], s=0.5, cmap="RdBu_r", vmin=-50, vmax=50, rasterized=True)
figure.colorbar(dots, ax=axes[0], shrink=0.8, label="measured, cm")
image = axes[1].imshow(mean_map.T, cmap="RdBu_r", vmin=-50, vmax=50, **frame)
figure.colorbar(image, ax=axes[1], shrink=0.8, label="height, cm")
image = axes[2].imshow(deviation_map.T, cmap="magma", norm=LogNorm(), **frame)
figure.colorbar(image, ax=axes[2], shrink=0.8, label="its standard deviation, cm")
axes[0].set(title=f"{len(x):,} measurements", ylabel="north, km")
axes[1].set_title("the sea surface")
axes[2].set_title("how well it is known")
for ax in axes:
    ax.set(xlabel="east, km", xlim=(0, EAST), ylim=(0, NORTH), aspect="equal")
figure.savefig("sea_surface.png")

# %% [markdown]
# Left: 30,000 of the measurements are drawn. Right: in the stripes the height is known to half a millimeter, because
# thousands of independent errors of 2.5 cm average out over an eddy; in the middle of a gap to some millimeters,
# because eddies are smooth; and at the western and eastern border, where a gap has one side, to 5 cm.
#
# ## Are the intervals honest?
#
# Random rows put aside would all lie beside others of the same stripe, and their errors would be noise and nothing
# else. So ask by distance to the nearest stripe. The truth is known here: of the places at each distance, how many have
# a height inside of their 95 % interval?

# %%
EDGES = (0.0, 1e-9, 20.0, 50.0, 200.0)  # km
LABELS = ("in a stripe", "up to 20 km off", "20 to 50 km", "farther")


def coverage(mean, deviation, truth, away):
    """The root mean square error, and the share of points inside of 95 % intervals, by distance."""
    error, rows = (mean - truth).abs(), []
    for low, high in itertools.pairwise(EDGES):
        chosen = (away >= low) & (away < high)
        rows.append((error[chosen].square().mean().sqrt(), (error < 1.96 * deviation)[chosen].double().mean()))
    return rows


away = distance(places, TRACKS)
of_first = coverage(mean, deviation, truth, away)
for label, (error, share) in zip(LABELS, of_first, strict=True):
    print(f"{label:16s} error {error:6.3f} cm, {share:4.0%} inside")

# %% [markdown]
# They are, near and far: the kernel fits the eddies, and its spectrum ends so early that the grid has all of it. This
# is one sea with some ten gaps, and the places in a gap err together: a few per cent up or down are luck.
#
# ## A sea of another kind
#
# Real eddies are of many sizes. Let most radii lie between 40 and 130 km, and see who notices. On a real sea nobody
# knows the truth, so a track is put aside, all of its six days. What was measured on it, in what is then a gap, tells
# what random rows cannot. There are three models: the one from above; a Matern-5/2 kernel, which lets the sea be rough
# and smooth; and the same with three times the frequencies.

# %%
LEFT_OUT = TRACKS[2]
others = [track for track in TRACKS if track is not LEFT_OUT]
height = simulated_sea(spread=0.3, seed=0)
x, y = measured(height, others * DAYS, seed=0)
aside_x, aside_y = measured(height, [LEFT_OUT], seed=1)
in_gap = distance(aside_x, others) > 20.0
aside_x, aside_y = aside_x[in_gap], aside_y[in_gap]

away, truth = distance(places, others), height(places)
profile = torch.linspace(0.0, 950.0, 30 if SHORT else 300).unsqueeze(-1) * along_and_across(LEFT_OUT[1])[0]
profile = profile + LEFT_OUT[0]
shares, profiles = {}, {}
for name, base, width in (
    ("Gaussian", RBFKernel(), WIDTH),
    ("Matern-5/2", MaternKernel(nu=2.5), WIDTH),
    ("Matern-5/2, more", MaternKernel(nu=2.5), MORE),
):
    model, summary, seconds = fitted(base, width, x, y)
    shares[name] = coverage(*heights_of(model, places), truth, away)
    profiles[name] = heights_of(model, profile)
    mean, deviation = heights_of(model, aside_x)
    wide = 1.96 * (deviation.square() + model.likelihood.noise.detach()).sqrt()
    inside = ((aside_y - mean).abs() < wide).double().mean()
    cut_off = float(model.covar_module.residual_variance(places[:1]).detach())
    print(
        f"{name:17s} {model.covar_module.num_scalar_features} features, {seconds:4.1f} s, evidence "
        f"{summary.log_marginal_likelihood / len(x):.4f} per row, cut off {cut_off:.4f} cm², "
        f"{inside:.0%} of the track put aside are inside"
    )

# %% [markdown]
# The left picture goes along the track that was put aside. The right one is the check by the truth, at all places.

# %%
COLORS = {"Gaussian": BLUE, "Matern-5/2": ORANGE, "Matern-5/2, more": GREEN}
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.2), layout="constrained", width_ratios=(1.4, 1.0))
way = (profile - profile[0]).norm(dim=-1)
for name in ("Matern-5/2", "Matern-5/2, more"):
    mean, deviation = profiles[name]
    left.fill_between(way, mean - 1.96 * deviation, mean + 1.96 * deviation, color=COLORS[name], alpha=0.3, lw=0)
    left.plot(way, mean, color=COLORS[name], label=name)
left.plot(way, height(profile), color="black", linestyle="--", linewidth=1.2, label="truth")
left.set(xlabel="km along the track that was put aside", ylabel="height, cm", title="means and 95 % intervals")
left.legend(frameon=False)

right.axhline(95, color="black", linestyle="--", linewidth=1.0)
right.plot(LABELS, [100 * share for _, share in of_first], "s:", color="gray", label="Gaussian, equal eddies")
for name, rows in shares.items():
    right.plot(LABELS, [100 * share for _, share in rows], "o-", color=COLORS[name], label=name)
right.set(ylabel="inside of 95 % intervals, %", ylim=(0, 103), title="coverage by distance from the stripes")
right.legend(frameon=False, loc="lower left")
figure.savefig("sea_coverage.png")

# %% [markdown]
# The stripes were seen a million times, and the three models agree on them to a few millimeters. In the gaps they
# do not, and two of the three have intervals that are much too narrow.
#
# - **The Gaussian kernel** knows eddies of one size. A million rows make it sure of its parameters, of the wrong kernel
#   all the same, and its intervals are too narrow everywhere.
# - **Matern-5/2 with 601 features** has the right doubts and too few waves. What the grid cuts off counts as noise
#   in training: half a cm² beside the 6 cm² of the instrument. But noise averages out, and short waves that are
#   missing do not: the others bend to make up for them, and swing in the gaps.
# - **With 1,801 features** less is cut off, means are about three times better, and intervals cover everywhere. They
#   are somewhat too wide, since this sea is smoother than the kernel says. It takes four or five times as long.
#
# Both things to look at were there without the truth. The track put aside shows what is wrong in gaps, as far as
# its own noise lets it. And the evidence per row, small as its differences look, is times a million: it prefers the
# last model by far.
#
# ## What one learns
#
# - In one to three inputs, with many rows and smooth functions: `method="fourier_grid"`. Rows are read once or twice,
#   and the rest costs what D features cost: D³ for an evaluation, whatever the number of rows.
# - Compare what is cut off, r, with the noise σ²: about D σ²/(2 r) rows are enough to tell one from the other. With
#   more rows than that, and gaps between them, take more features.
# - Put aside what predictions will be asked for: whole tracks for gaps, not random rows.
#
# ## Limits
#
# A real sea moves. Six days are short for an eddy and long for a current, so time is the third input of real maps; the
# grid takes three inputs, and needs many more frequencies for them. Errors of a real swath are not independent
# either: a satellite that rolls by a millionth of a degree tilts the stripe by a millimeter at its edge. And the
# intervals are those of one kernel for the whole box, where a real sea has quiet parts and wild ones.
