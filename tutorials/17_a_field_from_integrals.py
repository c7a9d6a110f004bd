# %% [markdown]
# # A field from integrals
#
# A thermometer says how warm it is where it hangs. Sound says how warm it is *along its way*: it runs faster through
# warm air, so the time from a loudspeaker to a microphone is an average of the temperature along the line between
# them. A thermal camera averages over its pixels, a rain gauge over an hour, a tomograph along its rays, and of a wall
# one knows that no heat goes through it. **How do you make one map, with error bars, from measurements of which hardly
# any was made at a point?**
#
# All of these are linear in the temperature: averages, integrals and derivatives of the unknown function. A Gaussian
# process stays one under linear maps, so that it can learn from any of them, and predict any of them. With Fourier
# features it is even easy: the average of a wave over a line or a box is the same wave times a number.

# %%
import os
import time
import warnings

import matplotlib.pyplot as plt
import torch
from gpytorch.kernels import ConstantKernel, MaternKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood

import rfgp
from rfgp.functionals.observations import boxes, derivatives, points, segments
from rfgp.kernels import ObservationKernel
from rfgp.models import WeightSpaceGP

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
torch.set_default_dtype(torch.float64)
warnings.filterwarnings("ignore", message=".* exceed the .* training rows")  # few rows here; many at the end
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})
INK, BLUE, ORANGE = "#222222", "#0072B2", "#D55E00"
generator = torch.Generator().manual_seed(0)

# %% [markdown]
# ## A room
#
# The room is 4 m by 3 m. Its left side is a cold window; the other walls are insulated, so that the temperature does
# not change across them. We make up a temperature that obeys both, as a few waves, and measure it below. Temperatures
# are differences from 20 °C.

# %%
WIDTH, DEPTH, WINDOW = 4.0, 3.0, -4.0  # m, m, and degrees
WAVES = {(0, 0): 6.0, (0, 1): 1.0, (1, 0): 0.8, (1, 1): -1.2, (0, 2): -0.7, (2, 1): 0.6, (1, 2): 0.6}


def temperature(x):
    total = torch.full(x.shape[:-1], WINDOW)
    for (m, n), size in WAVES.items():
        across = torch.sin((m + 0.5) * torch.pi * x[..., 0] / WIDTH)
        total = total + size * across * torch.cos(n * torch.pi * x[..., 1] / DEPTH)
    return total


def mean_over(low, high, count=200):
    """The average over lines or boxes (N, 2), by the midpoints of a fine grid."""
    t = (torch.arange(count) + 0.5) / count
    return temperature(low[:, None] + t[:, None] * (high - low)[:, None]).mean(-1)


# %% [markdown]
# ## Four kinds of measurements
#
# Every measurement is a row of numbers that says where it was made and what it is. `points` are values, `segments` are
# averages or integrals along lines, `boxes` over boxes, and `derivatives` are slopes in a direction. They have the
# same columns, so that `torch.cat` puts them together, and each has the variance of its own noise.
#
# - Five thermometers, good to 0.2 degrees.
# - Sound between twelve places at the walls, whose averages are good to 0.1 degrees.
# - The window: its temperature is known, to a hundredth of a degree.
# - The insulated walls: the derivative across them is zero. That costs no instrument at all.

# %%
thermometers = torch.tensor([[0.8, 0.7], [3.3, 0.5], [2.1, 1.6], [1.1, 2.5], [3.4, 2.4]])
bottom, top = ([[x, y] for x in (0.5, 1.5, 2.5, 3.5)] for y in (0.0, DEPTH))
left, right = ([[x, y] for y in (0.8, 2.2)] for x in (0.0, WIDTH))
walls = [torch.tensor(side) for side in (bottom, top, left, right)]
pairs = [(a, b) for i, one in enumerate(walls) for other in walls[i + 1 :] for a in one for b in other]
speakers, microphones = (torch.stack(ends) for ends in zip(*pairs, strict=True))

along, up = torch.linspace(0.0, WIDTH, 9), torch.linspace(0.0, DEPTH, 7)
window = torch.stack([torch.zeros(7), up], dim=-1)
insulated = torch.cat(
    [
        torch.stack([along, torch.zeros(9)], dim=-1),
        torch.stack([along, torch.full((9,), DEPTH)], dim=-1),
        torch.stack([torch.full((7,), WIDTH), up], dim=-1),
    ]
)
normals = torch.tensor([[0.0, -1.0]] * 9 + [[0.0, 1.0]] * 9 + [[1.0, 0.0]] * 7)

KINDS = {
    "thermometers": (points(thermometers), temperature(thermometers), 0.2),
    "sound": (segments(speakers, microphones), mean_over(speakers, microphones), 0.1),
    "window": (points(window), torch.full((7,), WINDOW), 0.01),
    "insulation": (derivatives(insulated, normals), torch.zeros(25), 0.01),
}
measured = {}
for name, (rows, truth, deviation) in KINDS.items():
    error = deviation * torch.randn(len(truth), generator=generator)
    measured[name] = rows, truth if name == "insulation" else truth + error, torch.full_like(truth, deviation**2)
    print(f"{name:13} {len(truth):3} rows of {rows.shape[1]} columns, deviation {deviation} ")


def together(names):
    return tuple(torch.cat(parts) for parts in zip(*(measured[name] for name in names), strict=True))


# %% [markdown]
# ## One kernel for all of them
#
# An `ObservationKernel` takes rows as its inputs. Inside is the kernel of the temperature itself, which is what one
# would write without integrals: how far it reaches and how much it varies. Hyperparameters, `rfgp.fit`, predictions,
# updates and saving are as always. (A level that is not known is a `ConstantKernel`: a `ConstantMean` knows nothing of
# derivatives, whose mean is zero.)

# %%
width, evaluations = (128, 8) if SHORT else (512, 60)
side = 25 if SHORT else 61
plane = torch.stack(
    torch.meshgrid(torch.linspace(0, WIDTH, side), torch.linspace(0, DEPTH, side), indexing="xy"), dim=-1
)
truth = temperature(plane)


def learned(names):
    x, y, noise = together(names)
    function = ScaleKernel(MaternKernel()) + ConstantKernel()
    kernel = rfgp.approximate(ObservationKernel(function, input_dim=2), width, seed=0)
    model = WeightSpaceGP(kernel, FixedNoiseGaussianLikelihood(noise))
    rfgp.fit(model, x, y, noise=noise, max_evaluations=evaluations)
    return model.requires_grad_(False).condition(x, y, noise)


STEPS = {
    "thermometers": ["thermometers"],
    "and sound": ["thermometers", "sound"],
    "and the walls": list(KINDS),
}
models, results = {}, {}
for label, names in STEPS.items():
    models[label] = learned(names)
    posterior = models[label].posterior(points(plane.flatten(0, 1)))
    mean, deviation = (part.unflatten(0, (side, side)) for part in (posterior.mean, posterior.stddev))
    results[label] = mean, deviation
    error = mean - truth
    inside = (error.abs() <= 2 * deviation).double().mean()
    print(f"{label:14} RMSE {error.square().mean().sqrt():.2f} degrees, {inside:.0%} within two deviations")

# %%
figure, axes = plt.subplots(2, 4, figsize=(12.5, 5.4), layout="constrained")
limits = -5.0, 5.0
ax = rfgp.study.plots.scalar_field(plane, truth, limits=limits, label="degrees from 20 °C", ax=axes[0, 0])
ax.set_title("truth")
for column, (label, (mean, deviation)) in enumerate(results.items(), start=1):
    rfgp.study.plots.scalar_field(plane, mean, limits=limits, label="posterior mean", ax=axes[0, column])
    axes[0, column].set_title(label)
    rfgp.study.plots.scalar_field(
        plane,
        deviation,
        limits=(0.0, float(deviation.max())),
        colors="YlGnBu",
        label="standard deviation",
        ax=axes[1, column],
    )
ax = axes[1, 0]
for one, other in zip(speakers, microphones, strict=True):
    ax.plot(*torch.stack([one, other]).T, color=INK, linewidth=0.3)
ax.plot([], [], color=INK, linewidth=0.8, label="sound")
ax.plot(*thermometers.T, "o", color=ORANGE, markersize=6, label="thermometers")
ax.plot(*window.T, "s", color=BLUE, markersize=5, label="window", clip_on=False)
ax.plot(*insulated.T, "^", color=INK, markersize=4, label="insulation", clip_on=False)
ax.set(aspect="equal", xlim=(0, WIDTH), ylim=(0, DEPTH))
ax.legend(frameon=False, ncols=2, loc="upper center", bbox_to_anchor=(0.5, -0.26), fontsize=8)
for ax in axes.flat:
    ax.set(xlabel="x, m")
for ax in axes[:, 0]:
    ax.set(ylabel="y, m")
figure.savefig("integrals_room.png")

# %% [markdown]
# Five thermometers see that it is warmer on the right, and little else: the error is 1.6 degrees, and five numbers are
# too few to learn how far the temperature reaches. Sound brings it down to 0.17, although no single measurement says
# where along its way the air was warm: lines that cross do. What is left is the border, where few lines pass (mind the
# scales below, which differ), and that is what the walls know: 0.06 degrees, with error bars that are rather too wide.
#
# This is one room, and a kind one. Error bars believe the kernel. In another room that we made up, with more waves,
# one of them as short as 2 m, the walls did not help: the error stayed at 0.20 degrees, as with sound alone, while the
# error bars shrank, and 53 % of the places were within two deviations instead of 88 %. An `RBFKernel` did the same
# there, and here it is as good as the Matern one. Keep some thermometers out of the fit, and look.
#
# ## Asking for integrals
#
# Rows describe what is predicted as well. How warm is the left half of the room on average, or the whole of it? Error
# bars of averages are much smaller than those of points, since errors at different places cancel, and one number at a
# time cannot know by how much: they need the covariance between all points of the room, which the row has inside.

# %%
halves = {
    "left half": ([0.0, 0.0], [WIDTH / 2, DEPTH]),
    "right half": ([WIDTH / 2, 0.0], [WIDTH, DEPTH]),
    "lower half": ([0.0, 0.0], [WIDTH, DEPTH / 2]),
    "the room": ([0.0, 0.0], [WIDTH, DEPTH]),
}
low, high = (torch.tensor(corners) for corners in zip(*halves.values(), strict=True))
t = (torch.arange(100) + 0.5) / 100
unit = torch.stack(torch.meshgrid(t, t, indexing="ij"), dim=-1).flatten(0, 1)
wanted = temperature(low[:, None] + unit * (high - low)[:, None]).mean(-1)

figure, ax = plt.subplots(figsize=(7.0, 3.4), layout="constrained")
MARKS = dict(zip(STEPS, (("o", INK), ("s", BLUE), ("^", ORANGE)), strict=True))
for shift, (label, model) in zip((-0.2, 0.0, 0.2), models.items(), strict=True):
    posterior = model.posterior(boxes(low, high))
    marker, color = MARKS[label]
    place = torch.arange(len(halves)) + shift
    ax.errorbar(place, posterior.mean - wanted, 2 * posterior.stddev, fmt=marker, color=color, capsize=3, label=label)
    print(label, [f"{m:.2f} ± {s:.2f}" for m, s in zip(posterior.mean, posterior.stddev, strict=True)])
print("truth", [f"{value:.2f}" for value in wanted])
ax.axhline(0.0, color=INK, linewidth=0.8, linestyle="--", label="truth")
ax.set_xticks(range(len(halves)), list(halves))
ax.set(ylabel="average temperature\nless that of the truth, degrees", title="two standard deviations")
ax.legend(frameon=False, ncols=2, fontsize=9)
figure.savefig("integrals_averages.png")

# %% [markdown]
# ## Many rays
#
# An exact model needs the covariance of every two rays, a double integral each, and then a matrix of all of them.
# Features need one sine, one cosine and one more sine for each ray and wave, however long the ray is. Here are the rays
# of a scanner: every one starts and ends at the border of the room. The kernel is the one that has just been learned.

# %%
num_rays = 500 if SHORT else 20_000
ends = torch.rand(2, num_rays, generator=generator) * 2 * (WIDTH + DEPTH)


def on_border(s):
    """The place (N, 2) after walking s meters along the walls."""
    x = torch.minimum(s, torch.full_like(s, WIDTH)) - (s - WIDTH - DEPTH).clamp(0.0, WIDTH)
    y = (s - WIDTH).clamp(0.0, DEPTH) - (s - 2 * WIDTH - DEPTH).clamp(0.0, DEPTH)
    return torch.stack([x, y], dim=-1)


start, end = on_border(ends[0]), on_border(ends[1])
y = mean_over(start, end) + 0.5 * torch.randn(num_rays, generator=generator)
kernel = models["and the walls"].covar_module
begin = time.perf_counter()
scan = WeightSpaceGP(kernel, FixedNoiseGaussianLikelihood(torch.full((num_rays,), 0.25)))
scan.condition(segments(start, end), y, torch.full((num_rays,), 0.25))
error = scan.posterior(points(plane.flatten(0, 1))).mean - truth.flatten()
print(f"{num_rays:,} rays with errors of 0.5 degrees in {time.perf_counter() - begin:.1f} s")
print(f"RMSE {error.square().mean().sqrt():.3f} degrees")

# %% [markdown]
# The error is 0.04 degrees, from measurements of which each is good to half a degree.
#
# What to remember:
#
# - A row is a place with an extent: a point, a box or a line, and weights that say whether the value, a derivative or
#   the component of a field is observed. Rows of all kinds mix, in training and in prediction.
# - Knowledge is data too: a boundary condition is a row with next to no noise. Noise that is *too* small makes systems
#   badly conditioned; a hundredth of what matters is enough.
# - Integrals are averages times lengths or volumes (`integral=True`), and their noise has the units of integrals.
# - Time is one more coordinate: an average over an hour is a box that extends in time alone.
