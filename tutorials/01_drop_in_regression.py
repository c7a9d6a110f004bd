# %% [markdown]
# # One line: regression with random features
#
# A Gaussian process with a polynomial kernel is a good model of a smooth curve. The exact model factorises an N x N
# matrix, at a cost of N³. **Can we keep the script and lose the cube?**
#
# We write an ordinary GPyTorch model, change one line, and look at what the line has done. Then we measure how far the
# result is from the exact model, and end with 20,000 rows that arrive in batches.

# %%
import math
import os
import time

import gpytorch
import matplotlib.pyplot as plt
import torch
from gpytorch.kernels import PolynomialKernel, ScaleKernel

import rfgp

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
torch.set_default_dtype(torch.float64)
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})
INK, BLUE, ORANGE, GREEN = "#222222", "#0072B2", "#D55E00", "#009E73"

# %% [markdown]
# ## A GPyTorch script
#
# The data are a noisy curve with a hole in the middle. The hole is there on purpose: where there are no data, the model
# has to say that it does not know.


# %%
def curve(x):
    return torch.sin(5.0 * x) + 0.5 * x


generator = torch.Generator().manual_seed(0)
x = 2.0 * torch.rand(140, 1, generator=generator) - 1.0
x = x[(x[:, 0] < -0.3) | (x[:, 0] > 0.5)]
y = curve(x[:, 0]) + 0.3 * torch.randn(len(x), generator=generator)


class Model(gpytorch.models.ExactGP):
    def __init__(self, x, y, kernel):
        super().__init__(x, y, gpytorch.likelihoods.GaussianLikelihood())
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


exact = Model(x, y, ScaleKernel(PolynomialKernel(power=6)))
print(rfgp.fit(exact))

# %% [markdown]
# `rfgp.fit` maximises the log marginal likelihood by L-BFGS, for any GPyTorch `ExactGP`. The usual loop with Adam works
# just as well.
#
# ## The one new line
#
# `rfgp.approximate` takes the exact kernel and returns a kernel of `num_features` random features. The rest of the
# script stays as it is.


# %%
def drop_in(num_features, seed=0):
    kernel = ScaleKernel(PolynomialKernel(power=6))
    kernel = rfgp.approximate(kernel, num_features=num_features, input_dim=1, seed=seed)  # the one new line
    model = Model(x, y, kernel)
    rfgp.fit(model)
    return model


widths = (4, 16) if SHORT else (4, 16, 64)
models = {width: drop_in(width) for width in widths}

# %% [markdown]
# We draw the posterior of the noise-free curve: a line for the mean, and a band of two standard deviations around it.

# %%
grid = torch.linspace(-1.1, 1.1, 221).unsqueeze(-1)
figure, axes = plt.subplots(1, len(widths), figsize=(3.5 * len(widths), 3.2), sharey=True, layout="constrained")
with torch.no_grad():
    reference = exact(grid)
    for ax, (width, model) in zip(axes, models.items(), strict=True):
        posterior, line = model(grid), grid[:, 0]
        ax.plot(x[:, 0], y, ".", color="#888888", markersize=4.5, markeredgewidth=0, label="data", zorder=1)
        band = posterior.mean - 2 * posterior.stddev, posterior.mean + 2 * posterior.stddev
        ax.fill_between(line, *band, color=BLUE, alpha=0.22, linewidth=0)
        ax.plot(line, posterior.mean, color=BLUE, linewidth=2.2, label="random features, mean ± 2 sd")
        ax.plot(line, reference.mean, color=INK, linewidth=1.0, label="exact, mean ± 2 sd")
        for sign in (-2, 2):
            ax.plot(line, reference.mean + sign * reference.stddev, color=INK, linewidth=0.9, linestyle=(0, (4, 2)))
        ax.set(title=f"{width} features", xlabel="x", ylim=(-2.4, 2.4))
axes[0].set_ylabel("f(x)")
figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
figure.savefig("drop_in_regression.png")

# %% [markdown]
# A polynomial of degree 6 in one variable has seven coefficients. Four random features cannot hold them: the mean is
# wrong, and the band is narrow where it should be wide. So too few features are not only inaccurate, they are also
# **too sure of themselves**. Sixteen features follow the exact mean and band closely, and 64 lie on top of them. The
# band opens in the hole and at the ends, as it should.
#
# Two things to know:
#
# - `num_features` counts the columns that come out. The default features are complex ones written as real numbers
#   ("complex-to-real", CtR), one column for the real part and one for the imaginary part. 64 features are 32 complex
#   ones, and the number must be even.
# - With more features than rows the exact kernel is cheaper. The library warns, and still works.
#
# ## How far from exact?
#
# A picture does not scale to ten inputs. `rfgp.diagnostics.kl_to_exact` does: it is the Kullback-Leibler divergence of
# the approximate posterior from the exact one with the same parameters, summed over test points. We divide by the
# number of points. As a rule of thumb, 0.005 nats at a point is a mean that is off by a tenth of a standard deviation.
#
# We look at the curve, and at a function of ten inputs, of which five matter (Friedman's test function), with a kernel
# of degree 4.


# %%
def friedman(num_rows, seed):
    generator = torch.Generator().manual_seed(seed)
    u = torch.rand(num_rows, 10, generator=generator)
    f = 10 * torch.sin(math.pi * u[:, 0] * u[:, 1]) + 20 * (u[:, 2] - 0.5) ** 2 + 10 * u[:, 3] + 5 * u[:, 4]
    return 2 * u - 1, f + torch.randn(num_rows, generator=generator), f


num_rows, num_exact, num_test = (600, 200, 100) if SHORT else (20_000, 1_000, 1_000)
x_all, y_all, _ = friedman(num_rows, seed=0)
x_test, _, f_test = friedman(num_test, seed=1)

small = Model(x_all[:num_exact], y_all[:num_exact], ScaleKernel(PolynomialKernel(power=4)))
print(rfgp.fit(small, max_evaluations=25))

# %% [markdown]
# To compare like with like, the approximation shares the parameters of the exact model: `rfgp.approximate` copies
# nothing. Every number of features is tried with several seeds, for CtR features and for plain real ones.


# %%
def divergence(model, points, method, num_features, seed):
    kernel = rfgp.approximate(model.covar_module, num_features, input_dim=points.shape[-1], method=method, seed=seed)
    approximation = rfgp.models.WeightSpaceGP(kernel, model.likelihood, model.mean_module)
    approximation.fit(model.train_inputs[0], model.train_targets)
    return float(rfgp.diagnostics.kl_to_exact(approximation, points)) / len(points)


seeds = range(2 if SHORT else 4)
problems = {
    "1 input, degree 6": (exact, grid, (8, 32) if SHORT else (8, 16, 32, 64)),
    "10 inputs, degree 4": (small, x_test[:200], (64, 128) if SHORT else (64, 128, 256, 512)),
}
methods = {"tensor_srht:ctr": ("complex-to-real (default)", BLUE, "o"), "tensor_srht:real": ("real", ORANGE, "s")}
figure, axes = plt.subplots(1, 2, figsize=(8.2, 3.4), layout="constrained")
with torch.no_grad():
    for ax, (title, (model, points, widths)) in zip(axes, problems.items(), strict=True):
        for method, (label, color, marker) in methods.items():
            kl = torch.tensor([[divergence(model, points, method, w, seed) for w in widths] for seed in seeds])
            for row in kl:
                ax.loglog(widths, row, marker, color=color, alpha=0.35, markersize=4, markeredgewidth=0)
            ax.loglog(widths, kl.log().mean(0).exp(), color=color, marker=marker, linewidth=1.8, label=label)
        ax.set(title=title, xlabel="number of features", xticks=widths, xticklabels=widths)
        ax.minorticks_off()
        ax.grid(True, color="#E5E5E5", linewidth=0.6)
axes[0].set_ylabel("KL to the exact posterior\n(nats per test point)")
axes[1].legend(frameon=False)
figure.savefig("drop_in_kl.png")
