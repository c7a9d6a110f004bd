# %% [markdown]
# # Which features for my kernel and my data?
#
# There are many ways to approximate a kernel by random features. Papers compare them on their own data, and the
# winner changes with the kernel, the lengthscale, the dimension and the budget. **Can we know beforehand which one is
# best for ours, and how large its error will be?**
#
# For most feature maps the variance of the kernel estimate has a closed form. It depends on the inputs alone, so that
# we can average it over the training inputs before any feature is computed. That is what
# `rfgp.approximation.selection` does.

# %%
import math
import os
import warnings

import gpytorch
import matplotlib.pyplot as plt
import torch
from gpytorch.kernels import LinearKernel, PeriodicKernel, RBFKernel, ScaleKernel

import rfgp
from rfgp.approximation.selection import predicted_error, rank_methods, suggest_num_features
from rfgp.diagnostics import kl_to_exact, relative_frobenius_error
from rfgp.models import LocalizedMaclaurinGP, WeightSpaceGP

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
torch.set_default_dtype(torch.float64)
warnings.filterwarnings("ignore", message=".*exceeds? the .* training rows")  # a few rows are enough to look at errors
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})
INK, COLORS = "#222222", ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00")

# %% [markdown]
# ## A ranking
#
# The inputs are 8 x 8 images of digits. The kernel is Gaussian, with the median distance as lengthscale.

# %%
x = torch.as_tensor(rfgp.study.datasets.load("digits").x_train) / 16.0
x = x[:80] if SHORT else x[:1000]
median = float(torch.pdist(x).median())
kernel = RBFKernel()
kernel.lengthscale = median

for candidate in rank_methods(kernel, num_features=32 if SHORT else 256, train_inputs=x):
    error, lost = candidate.error, candidate.kl_per_point
    source = "closed form" if error.is_closed_form else f"simulated, ± {error.standard_error:.4f}"
    print(f"{candidate.method:26} KL {lost:8.3f}   error {error.relative_error:.4f} {source}")

# %% [markdown]
# The order is that of KL, the divergence per point from the exact posterior at held-out rows and beyond the data:
# what predictions lose. `method="auto"` takes the first, or a cheaper one that loses as little. Beside it stands the
# predicted relative Frobenius error, the root of E‖K̂ - K‖² over ‖K‖, diagonal included, which the rest of this page
# is about. By it optimized Maclaurin features lead the random ones: at this lengthscale the Gaussian kernel is almost
# a polynomial of low degree, and the sketches of that degree waste nothing. They are centered for us, which a
# shift-invariant kernel allows.
#
# These are errors on the data. Away from the data a series that is cut off vanishes, and takes the variance of the
# function samples with it. `method="auto"` therefore passes over Maclaurin features of the Gaussian kernel. Here we
# stay among the digits, and ask by name.

# %%
chosen = rfgp.approximate(kernel, num_features=256, method="optimized_maclaurin:real", train_inputs=x, seed=0)
print("predicted", round(predicted_error(chosen, x).relative_error, 4))
print("measured ", round(float(relative_frobenius_error(chosen, x)), 4))

# %% [markdown]
# ## The winner changes
#
# We make the lengthscale shorter. Now the kernel has all degrees, and no sketch can hold them.

# %%
methods = ("fourier", "fourier_orthogonal", "optimized_maclaurin:real", "optimized_maclaurin:ctr")
widths = (16, 32) if SHORT else (64, 128, 256, 512)
figure, axes = plt.subplots(1, 3, figsize=(10.5, 3.3), sharey=True, layout="constrained")
for ax, share in zip(axes, (1.0, 0.5, 0.2), strict=True):
    shorter = RBFKernel()
    shorter.lengthscale = share * median
    for method, color in zip(methods, COLORS, strict=False):
        predicted, measured = [], []
        for width in widths:
            approximate = rfgp.approximate(shorter, width, method=method, train_inputs=x[:500], seed=1)
            predicted.append(predicted_error(approximate, x[:500]).relative_error)
            measured.append(float(relative_frobenius_error(approximate, x[-500:])))
        ax.plot(widths, predicted, color=color, label=f"{method}, predicted")
        ax.plot(widths, measured, "o", color=color, markersize=4, label=f"{method}, measured")
    ax.set(xscale="log", yscale="log", xlabel="number of features D", title=f"lengthscale = {share:g} x median")
    ax.set_xticks(widths, [str(width) for width in widths], minor=False)
    ax.xaxis.minorticks_off()
axes[0].set_ylabel("relative Frobenius error")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=4, frameon=False, fontsize=8)
figure.savefig("which_features.png")

# %% [markdown]
# Lines are predictions, dots are one draw of the features, measured on inputs that the prediction has not seen. On the
# left Maclaurin features need far fewer columns than Fourier features. At half the lengthscale their lead is at most a
# factor of two. At a fifth nothing works with hundreds of features: the kernel matrix is nearly diagonal, of full rank,
# and a matrix of low rank cannot be close to it. Maclaurin features then vanish, for an error of one; Fourier features
# are worse than nothing. **A prediction that says "no" is worth as much as one that says "which".** There the honest
# advice is an exact model, or a kernel with a longer lengthscale.
#
# ## How many?
#
# `suggest_num_features` turns the question around.

# %%
for tolerance in (0.3, 0.2) if SHORT else (0.1, 0.03, 0.01):
    by_method = {
        m: suggest_num_features(kernel, x, tolerance, method=m) for m in ("fourier", "optimized_maclaurin:real")
    }
    fourier, maclaurin = by_method.values()
    print(f"error {tolerance:5}: {fourier:6,} Fourier features, {maclaurin:5,} Maclaurin features")

# %% [markdown]
# These are expected errors. `rfgp.diagnostics.bounds` has the guarantees of the papers: they hold with a stated
# probability, and they ask for many more features.

# %%
print(
    "pointwise, error 0.1 with probability 0.99:",
    int(rfgp.diagnostics.bounds.fourier_bound().num_features(0.1, 0.01)),
    "features",
)

# %% [markdown]
# ## Sums and products
#
# Models in practice are put together: a trend, a season that changes slowly, a smooth rest. GPyTorch writes them with
# `+` and `*`, and one line approximates them part by part. Linear parts are exact. The periodic kernel has a Fourier
# series of few terms. Products of stationary kernels multiply their complex features column by column.

# %%
generator = torch.Generator().manual_seed(0)
count = 300 if SHORT else 1500
time_of = 12.0 * torch.rand(count, 1, generator=generator).sort(dim=0).values
season = torch.sin(2.0 * math.pi * time_of[:, 0]) * torch.exp(-0.1 * time_of[:, 0])
y = 0.2 * time_of[:, 0] - 1.2 + season + 0.3 * torch.randn(count, generator=generator)

locally_periodic = ScaleKernel(RBFKernel() * PeriodicKernel())
locally_periodic.base_kernel.kernels[0].lengthscale = 5.0
locally_periodic.base_kernel.kernels[1].period_length = 1.0
exact = ScaleKernel(LinearKernel()) + locally_periodic + ScaleKernel(RBFKernel())
approximate = rfgp.approximate(exact, num_features=33 if SHORT else 257, train_inputs=time_of, seed=0)
model = WeightSpaceGP(approximate, gpytorch.likelihoods.GaussianLikelihood())
print(rfgp.fit(model, time_of, y, strategy=rfgp.training.Auto(initialize=False), max_evaluations=5 if SHORT else 40))

# %%
later = torch.linspace(0.0, 14.0, 500)[:, None]
with torch.no_grad():
    posterior = model.posterior(later)
    mean, deviation = posterior.mean, posterior.variance.sqrt()
figure, ax = plt.subplots(figsize=(7.5, 3.0), layout="constrained")
ax.plot(time_of[:, 0], y, ".", color="#999999", markersize=2, label="data")
band = mean - 2.0 * deviation, mean + 2.0 * deviation
ax.fill_between(later[:, 0], *band, color=COLORS[0], alpha=0.25, linewidth=0, label="posterior, ± 2 sd")
ax.plot(later[:, 0], mean, color=COLORS[0], label="posterior, mean")
ax.axvline(12.0, color=INK, linewidth=0.8, linestyle=":", label="the last observation")
ax.set(xlabel="time (seasons)", ylabel="y")
ax.legend(frameon=False, ncols=2, fontsize=8)
figure.savefig("which_features_season.png")

# %% [markdown]
# The trend and the season go on after the last observation, and the band opens. All parameters were learned through
# the features, the period included.
#
# ## Short lengthscales in few dimensions
#
# One failure has a cure of its own. A truncated Maclaurin series of the Gaussian kernel vanishes away from the
# origin: far out the model has no variance left. The kernel does not care where the origin is, so
# `LocalizedMaclaurinGP` puts one near every prediction.

# %%
x_toy = torch.linspace(-4.0, 4.0, 100)[:, None]
y_toy = torch.sin(5.0 * x_toy[:, 0]) / x_toy[:, 0] + 0.1 * torch.randn(100, generator=generator)
kernel = ScaleKernel(RBFKernel())
kernel.base_kernel.lengthscale, kernel.outputscale = 0.5, 3.0
likelihood = gpytorch.likelihoods.GaussianLikelihood()
likelihood.noise = 0.01
grid = torch.linspace(-6.0, 6.0, 240)[:, None]

plain = rfgp.approximate(kernel, 10, method="optimized_maclaurin:real", train_inputs=x_toy, seed=0)
models = {
    "plain": WeightSpaceGP(plain, likelihood).condition(x_toy, y_toy),
    "localized": LocalizedMaclaurinGP(kernel, likelihood, 10, centers=grid).condition(x_toy, y_toy),
}
reference = rfgp.diagnostics.exact_posterior(kernel, likelihood, x_toy, y_toy, grid)
figure, axes = plt.subplots(1, 2, figsize=(9.0, 3.0), sharey=True, layout="constrained")
for ax, (name, model), color in zip(axes, models.items(), COLORS, strict=False):
    with torch.no_grad():
        posterior = model.posterior(grid)
        curve = posterior.mean, posterior.variance.clamp_min(0.0).sqrt()
        divergence = float(kl_to_exact(model, grid, noisy=True, train_inputs=x_toy, train_targets=y_toy))
    for what, mean, deviation, ink in (("exact", reference.mean, reference.stddev, INK), (name, *curve, color)):
        band = mean - 2 * deviation, mean + 2 * deviation
        ax.fill_between(grid[:, 0], *band, color=ink, alpha=0.15, linewidth=0, label=f"{what}, ± 2 sd")
        ax.plot(grid[:, 0], mean, color=ink, linewidth=1.2, label=f"{what}, mean")
    ax.plot(x_toy[:, 0], y_toy, ".", color="#888888", markersize=3, label="data")
    ax.set(title=f"{name}: KL to the exact model {divergence:,.0f} nats", xlabel="x", ylim=(-6, 8))
    ax.legend(frameon=False, fontsize=7, loc="upper right")
axes[0].set_ylabel("y, and the function f(x)")
figure.savefig("which_features_localized.png")

# %% [markdown]
# With ten features the mean of the plain model falls to zero where |x| is large, in the midst of data. Its band is
# that of the prior there, since predictions add the residual variance of the features: it has learned nothing, and
# says so. The localized one follows the exact model and returns to the prior. We gave it a center per test input
# here; by default it clusters the training inputs, which is cheaper and as good near the data. It is a method for
# short lengthscales and noise that is not tiny: with long lengthscales a single center is better.
#
# **What to remember.** Ask `rank_methods` before you compare by hand. Pass `train_inputs` to `approximate`, and it
# asks for you, for the method whose posterior loses least, among those that last off the data. If the
# predicted loss is large, believe it.
