# %% [markdown]
# # What is a gradient worth?
#
# Simulations often give derivatives with the value: adjoint codes, automatic differentiation, forces in chemistry. In
# d dimensions a gradient is d numbers, for the price of a few values. **How much faster do we learn with them?** And
# when nobody measures derivatives, how well can we predict them?
#
# A derivative of a Gaussian process is a Gaussian process, and the two are correlated. `LinearlyObservedKernel` is
# the joint kernel of everything that linear operators make of a function. Random features make it cheap: a gradient
# of exp(iw·x) is the same feature times iw.

# %%
import math
import os
import time
import warnings

import matplotlib.pyplot as plt
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood, MultitaskGaussianLikelihood

import rfgp
from rfgp.functionals import Gradient, Laplacian, Value
from rfgp.kernels import LinearlyObservedKernel
from rfgp.likelihoods import MultitaskFixedNoiseGaussianLikelihood
from rfgp.models import WeightSpaceGP

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
torch.set_default_dtype(torch.float64)
warnings.filterwarnings("ignore", message=".*exceeds? the .* training rows")  # few points, on purpose
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})
INK, BLUE, ORANGE, GREEN = "#222222", "#0072B2", "#D55E00", "#009E73"
NAN = float("nan")

# %% [markdown]
# ## Five points
#
# Rows of the targets are [value, slope], as the operators are listed. What has not been observed is NaN, and the
# model leaves it out. So one model serves all three cases: values, both, and slopes with a single value, without
# which a function is known up to a constant only.


# %%
def gradient_model(num_features, input_dim, noise=1e-2, lengthscale=1.0, seed=0):
    kernel = ScaleKernel(LinearlyObservedKernel(RBFKernel(), [Value(), Gradient()]))
    kernel.base_kernel.base_kernel.lengthscale = lengthscale
    likelihood = MultitaskGaussianLikelihood(1 + input_dim, has_task_noise=False)
    likelihood.noise = noise**2
    return WeightSpaceGP(rfgp.approximate(kernel, num_features, input_dim=input_dim, seed=seed), likelihood)


def observed(y, kind):
    """The targets [value, gradient] with NaN in place of what is not observed."""
    y = y.clone()
    if kind == "values":
        y[:, 1:] = NAN
    if kind == "gradients and one value":
        y[1:, 0] = NAN
    return y


x = torch.tensor([[-2.6], [-1.5], [0.1], [1.3], [2.5]])
y = torch.cat([torch.sin(2 * x) + 0.3 * x, 2 * torch.cos(2 * x) + 0.3], dim=-1)
line = torch.linspace(-3.2, 3.2, 241)[:, None]
kinds = {"values": ORANGE, "values and gradients": BLUE, "gradients and one value": GREEN}
figure, axes = plt.subplots(1, 3, figsize=(10.6, 3.2), sharey=True, layout="constrained")
for ax, (kind, color) in zip(axes, kinds.items(), strict=True):
    with torch.no_grad():
        known = observed(y, kind)
        posterior = gradient_model(128, 1).condition(x, known).posterior(line)
        mean, deviation = posterior.mean[:, 0], posterior.stddev[:, 0]
    ax.plot(line, torch.sin(2 * line) + 0.3 * line, color=INK, linewidth=1.0, linestyle=(0, (4, 2)), label="truth")
    ax.fill_between(line[:, 0], mean - 2 * deviation, mean + 2 * deviation, color=color, alpha=0.2, linewidth=0)
    ax.plot(line, mean, color=color, linewidth=2.0, label="mean ± 2 sd")
    for place, (value, slope), (known_value, known_slope) in zip(x[:, 0], y, known, strict=True):
        if not known_slope.isnan():
            ends = torch.tensor([-0.3, 0.3]) / (1 + slope**2).sqrt()
            level = value if not known_value.isnan() else float(mean[(line[:, 0] - place).abs().argmin()])
            ax.plot(place + ends, level + slope * ends, color=INK, linewidth=2.2, solid_capstyle="round")
        if not known_value.isnan():
            ax.plot(place, value, "o", color=INK, markersize=6)
    ax.set(title=kind, xlabel="x", ylim=(-2.0, 2.2))
    ax.legend(frameon=False, loc="upper left", ncols=2, fontsize="small")
axes[0].set_ylabel("f(x)")
figure.savefig("gradients_five_points.png")

# %% [markdown]
# Five values do not show that the curve has two periods: the model draws a slower one, and is too sure of it. With
# slopes there is only one curve left. Slopes alone fix its shape, and the band tells what they do not: the level,
# which is known at one place only and less and less away from it.
#
# ## How many points are saved?
#
# A test function in two, three and five dimensions, gradients by automatic differentiation, and noise of 0.05 on
# every number. The parameters are learned from the same observations.


# %%
def landscape(x):
    return torch.sin(2 * x[:, 0]) + 0.5 * x[:, 0] * x[:, 1] + torch.cos(x.sum(-1)) + 0.3 * x.square().mean(-1)


def with_gradient(x):
    x = x.clone().requires_grad_()
    value = landscape(x)
    (slopes,) = torch.autograd.grad(value.sum(), x)
    return torch.cat([value.detach()[:, None], slopes], dim=-1)


def points(num_rows, dim, seed):
    return 3 * torch.rand(num_rows, dim, generator=torch.Generator().manual_seed(seed)) - 1.5


def learned(kind, num_rows, dim, num_features, seed=0):
    """A model of noisy observations, with parameters from the evidence."""
    x = points(num_rows, dim, seed)
    exact = with_gradient(x)
    y = observed(exact + 0.05 * torch.randn(exact.shape, generator=torch.Generator().manual_seed(100 + seed)), kind)
    model = gradient_model(num_features, dim, noise=0.05, seed=seed)
    model.likelihood.requires_grad_(False)  # the noise is known
    rfgp.fit(model, x, y, strategy=rfgp.training.Auto(initialize=False), max_evaluations=8 if SHORT else 25)
    model.requires_grad_(False)
    return model.condition(x, y)


dims, counts, repeats = ((2,), (8, 16), 1) if SHORT else ((2, 3, 5), (10, 20, 40, 80, 160), 3)
num_features = 64 if SHORT else 256
figure, axes = plt.subplots(
    1, len(dims), figsize=(3.5 * len(dims), 3.5), sharey=True, squeeze=False, layout="constrained"
)
for ax, dim in zip(axes[0], dims, strict=True):
    place = points(500, dim, seed=999)
    truth = with_gradient(place)
    for kind, color in kinds.items():
        errors = torch.zeros(len(counts), repeats)
        for i, count in enumerate(counts):
            for seed in range(repeats):
                model = learned(kind, count, dim, num_features, seed)
                errors[i, seed] = (model.posterior(place).mean[:, 0] - truth[:, 0]).square().mean().sqrt()
        ax.plot(counts, errors, "o", color=color, alpha=0.4, markersize=4, markeredgewidth=0)
        ax.plot(counts, errors.median(-1).values, "o-", color=color, linewidth=1.8, label=kind)
        print(f"{dim} dimensions, {kind:24}", " ".join(f"{float(e):.3f}" for e in errors.median(-1).values))
    ax.set(xscale="log", yscale="log", xlabel="points", title=f"{dim} dimensions")
    ax.set_xticks(counts, counts)
    ax.set_xticks([], minor=True)
    ax.grid(True, color="#E5E5E5", linewidth=0.6)
axes[0, 0].set_ylabel("RMSE of the value")
figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
figure.savefig("gradients_worth.png")

# %% [markdown]
# Lines are medians of three sets of points. A point with its gradient does what four or more points do without: 20
# are better than 80 in two dimensions, 40 nearly as good as 160 in three and five. That is three, four and six
# numbers instead of one, so **a gradient is worth about as much as its numbers**, and no more. The bargain is in the
# price: automatic differentiation delivers all d of them for that of a few values. Gradients with a single value are
# close behind, except where that one value, on whose noise the level hangs, was unlucky.
#
# ## Derivatives that nobody measured
#
# Now we have values only, and ask for the gradient, and for the Laplacian. `posterior(x, operator)` gives their joint
# distribution. The kernel has to be operator-valued for that, and the smallest of its kind observes `[Value()]`
# alone.

# %%
dim, num_rows = 3, 60 if SHORT else 300
x = points(num_rows, dim, seed=5)
y = landscape(x) + 0.05 * torch.randn(num_rows, generator=torch.Generator().manual_seed(6))
kernel, likelihood = ScaleKernel(LinearlyObservedKernel(RBFKernel(), [Value()])), GaussianLikelihood()
few = WeightSpaceGP(rfgp.approximate(kernel, num_features, input_dim=dim, seed=0), likelihood)
print(rfgp.fit(few, x, y, max_evaluations=8 if SHORT else 60))
few.requires_grad_(False)  # learn with few features, predict with many
model = WeightSpaceGP(rfgp.approximate(kernel, 4 * num_features, input_dim=dim, seed=1), likelihood).condition(x, y)

place = points(500, dim, seed=999)


def second_derivatives(x):
    """The Laplacian of the landscape by automatic differentiation."""
    x = x.clone().requires_grad_()
    (slopes,) = torch.autograd.grad(landscape(x).sum(), x, create_graph=True)
    return sum(torch.autograd.grad(column.sum(), x, retain_graph=True)[0][:, i] for i, column in enumerate(slopes.T))


truths = {
    "value": (Value(), landscape(place)),
    "gradient": (Gradient(), with_gradient(place)[:, 1:]),
    "Laplacian": (Laplacian(), second_derivatives(place)),
}
figure, axes = plt.subplots(1, 4, figsize=(12.0, 3.1), layout="constrained")
levels = torch.linspace(0.02, 0.98, 49)
for ax, (name, (operator, truth)), color in zip(axes, truths.items(), kinds.values(), strict=False):
    posterior = model.posterior(place, operator)
    mean, deviation = posterior.mean, posterior.stddev
    z = ((mean - truth) / deviation).abs().flatten()
    shown = torch.randperm(z.numel(), generator=torch.Generator().manual_seed(0))[:150]
    lines = (part.flatten()[shown] for part in (truth, mean, 2 * deviation))
    ax.errorbar(*lines, fmt=".", color=color, markersize=4, elinewidth=0.7, alpha=0.6)
    ends = torch.stack([truth.min(), truth.max()])
    ax.plot(ends, ends, color=INK, linewidth=1.0)
    ax.set(title=name, xlabel="truth")
    covered = [float((torch.erf(z / math.sqrt(2)) <= level).double().mean()) for level in levels]
    axes[3].plot(levels, covered, color=color, linewidth=1.8, label=name)
    relative = (mean - truth).square().mean().sqrt() / truth.std()
    share = 100 * (z <= 1.96).double().mean()
    print(f"{name:10} error {100 * relative:.0f} % of its size, {share:.0f} % in 95 % intervals")
axes[0].set_ylabel("prediction, mean ± 2 sd")
axes[3].plot([0, 1], [0, 1], color=INK, linewidth=1.0)
axes[3].set(title="are the intervals right?", xlabel="probability of the interval", ylabel="share of points inside")
axes[3].legend(frameon=False)
figure.savefig("gradients_predicted.png")

# %% [markdown]
# Every derivative costs accuracy, and the intervals say how much: 97, 98 and 97 percent of the truth are in
# intervals that promise 95. That needs more features than learning the parameters does. With the 256 that we learned
# with, it was 86 to 89 percent: **too few features are too sure of themselves**, about derivatives as about values.
#
# ## A differential equation is data
#
# Nothing says that what we observe is noisy. We know of a function that its Laplacian is a given source inside a
# domain, and that its values are given on the boundary: Poisson's equation. Inside we observe `Laplacian()`, on the
# boundary `Value()`, and never both. The domain is a disc with a hole. There is no mesh; and no point has to be
# anywhere.


# %%
def solution(x):
    return torch.sin(3 * x[:, 0]) * torch.exp(0.5 * x[:, 1]) + torch.exp(-4 * (x - 0.3).square().sum(-1))


def source(x):
    r = (x - 0.3).square().sum(-1)
    wave = -8.75 * torch.sin(3 * x[:, 0]) * torch.exp(0.5 * x[:, 1])
    return wave + (64 * r - 16) * torch.exp(-4 * r)


def is_inside(x):
    return (x.norm(dim=-1) < 1) & ((x - torch.tensor([-0.35, -0.2])).norm(dim=-1) > 0.3)


def poisson(num_inside, num_features):
    """A model that knows the source at some points and the solution on the boundary."""
    inside = 2 * torch.quasirandom.SobolEngine(2, seed=1, scramble=True).draw(4 * num_inside).double() - 1
    inside = inside[is_inside(inside)][:num_inside]
    turns = 2 * math.pi * torch.arange(max(num_inside // 4, 12)) / max(num_inside // 4, 12)
    circle = torch.stack([turns.cos(), turns.sin()], dim=-1)
    boundary = torch.cat([circle, 0.3 * circle[::2] + torch.tensor([-0.35, -0.2])])
    x = torch.cat([boundary, inside])
    y = torch.full((len(x), 2), NAN)
    y[: len(boundary), 0], y[len(boundary) :, 1] = solution(boundary), source(inside)
    kernel = ScaleKernel(LinearlyObservedKernel(RBFKernel(), [Value(), Laplacian()]))
    kernel.base_kernel.base_kernel.lengthscale = 0.5
    noise = torch.tensor([1e-3, 1e-2]).square().expand(len(x), 2)  # equations hold to that accuracy
    approximate = rfgp.approximate(kernel, num_features, input_dim=2, seed=0)
    model = WeightSpaceGP(approximate, MultitaskFixedNoiseGaussianLikelihood(noise))
    rfgp.fit(
        model, x, y, noise=noise, strategy=rfgp.training.Auto(initialize=False), max_evaluations=8 if SHORT else 40
    )
    return model.requires_grad_(False).condition(x, y, noise), boundary, inside


side = 41 if SHORT else 101
edge = torch.linspace(-1, 1, side)
plane = torch.stack(torch.meshgrid(edge, edge, indexing="xy"), dim=-1)
outside = ~is_inside(plane.flatten(0, 1)).unflatten(0, (side, side))


def masked(values):
    return values.unflatten(0, (side, side)).masked_fill(outside, NAN)


sizes = (20, 40) if SHORT else (20, 40, 80, 160)
truth, rows = solution(plane.flatten(0, 1)), []
for count in sizes:
    model, boundary, inside = poisson(count, 128 if SHORT else 512)
    posterior = model.posterior(plane.flatten(0, 1))
    mean, deviation = posterior.mean[:, 0], posterior.stddev[:, 0]
    error = masked(mean - truth)
    within = (error.abs() <= 2 * masked(deviation))[~outside].double().mean()
    rows.append((float(error.square().nanmean().sqrt()), float(masked(deviation).nanmean())))
    print(f"{count:4} points inside: RMSE {rows[-1][0]:.1e}, {100 * within:.0f} % within two deviations")
    if count == sizes[1]:
        shown = boundary, inside, mean, deviation

figure, axes = plt.subplots(1, 3, figsize=(11.0, 3.3), layout="constrained")
boundary, inside, mean, deviation = shown
rfgp.study.plots.scalar_field(plane, masked(mean), label="u", ax=axes[0])
axes[0].contour(edge, edge, masked(mean), 12, colors=INK, linewidths=0.6)
limits = 0.0, float(masked(deviation).nan_to_num().max())
rfgp.study.plots.scalar_field(
    plane, masked(deviation), limits=limits, colors="YlGnBu", label="standard deviation", ax=axes[1]
)
axes[1].plot(*boundary.T, "o", color=ORANGE, markersize=4, label="u is known")
axes[1].plot(*inside.T, ".", color=INK, markersize=5, label="Δu is known")
axes[1].legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, 0.04), ncols=2)
for ax in axes[:2]:
    ax.axis("off")
    ax.set(xlim=(-1.05, 1.05), ylim=(-1.05, 1.05))
errors, deviations = zip(*rows, strict=True)
axes[2].plot(sizes, errors, "o-", color=BLUE, linewidth=1.8, label="RMSE")
axes[2].plot(sizes, deviations, "s--", color=INK, linewidth=1.2, markersize=4, label="mean standard deviation")
axes[2].set(xscale="log", yscale="log", xlabel="points inside", title="no mesh, few points")
axes[2].set_xticks(sizes, sizes)
axes[2].set_xticks([], minor=True)
axes[2].legend(frameon=False)
figure.savefig("gradients_poisson.png")

# %% [markdown]
# From 20 to 80 points the error falls a hundredfold, from 0.039 to 0.0004, and then more slowly, as it nears the
# accuracy to which we take the equations. With 20 points the intervals are too narrow, since the parameters are
# learned from the same few equations; with more they are safe. Other kernels must be smooth enough: a `MaternKernel`
# with nu = 5/2 has a Laplacian, and one with nu = 3/2 is refused.
#
# ## Many gradients
#
# An exact model of 20,000 points with gradients in five dimensions has a matrix of 120,000 rows: 115 GB.

# %%
dim, num_rows = 5, 500 if SHORT else 20_000
x = points(num_rows, dim, seed=1)
y = with_gradient(x)
y = y + 0.05 * torch.randn(y.shape, generator=torch.Generator().manual_seed(2))
few = learned("values and gradients", 100, dim, num_features)  # parameters from a hundred points
kernel = rfgp.approximate(few.covar_module.exact_kernel, 4 * num_features, input_dim=dim, seed=1)
start = time.perf_counter()
model = WeightSpaceGP(kernel, few.likelihood).condition(x, y)
place, seconds = points(500, dim, seed=999), time.perf_counter() - start
error = model.posterior(place).mean - with_gradient(place)
print(f"{y.numel():,} numbers in {seconds:.1f} s")
print("RMSE of values and slopes", [round(float(column.square().mean().sqrt()), 4) for column in error.T])

# %% [markdown]
# The scalar features are computed once; a row with six outputs costs hardly more than a row with one. That is why the
# number of derivatives does not appear in the bill.
#
# What to remember:
#
# - List what is observed, leave out what is missing as NaN, and ask for any derivative of what the kernel is over.
# - `posterior(x, operator)` applies to the *outputs* of the kernel. With `[Value(), Gradient()]` the gradient is
#   there already; `posterior(x, Gradient())` of it would be derivatives of derivatives.
# - Noise of values and of derivatives has different units. `MultitaskGaussianLikelihood` learns one for each output
#   by default, and `MultitaskFixedNoiseGaussianLikelihood` takes them as they are known.
