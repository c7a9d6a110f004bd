# %% [markdown]
# # Deep kernels, and what their error bars say
#
# A kernel says that near inputs have near values. Near in *what*? A lengthscale for every input is the usual answer.
# A **deep kernel** has another one: a network takes the inputs to a space in which the function is smooth, and the
# network is learned with the kernel (Wilson et al., 2016). It can find a direction, a product or an edge that no
# lengthscale finds.
#
# The price is not in the mean, it is in the error bars. A network of a thousand weights can take rows to wherever the
# marginal likelihood is largest, and that is where the rows explain each other perfectly (Ober, Rasmussen and van der
# Wilk, 2021). This page shows when that happens, how one sees it, and what helps.

# %%
import math
import os

import gpytorch
import matplotlib.pyplot as plt
import torch

import rfgp
from rfgp.kernels import InputTransformKernel, LinearMap
from rfgp.study import plots

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
torch.set_default_dtype(torch.float64)
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})

# %% [markdown]
# ## A function with an edge
#
# Six inputs. The function jumps where a combination of three of them changes its sign, by an amount that depends on a
# fourth, and the product of the last two makes waves. Measurements have a noise of 0.2. It is made for this page: a
# stationary kernel cannot be right about it, and a network can.


# %%
def measured(count, seed):
    """Inputs (N, 6), and noisy values."""
    generator = torch.Generator().manual_seed(seed)
    x = 2.0 * torch.rand(count, 6, generator=generator) - 1.0
    edge = torch.sign(x[:, 0] + x[:, 1] - 0.3 * x[:, 2]) * (1.0 + x[:, 3])
    return x, edge + torch.sin(4.0 * x[:, 4] * x[:, 5]) + 0.2 * torch.randn(count, generator=generator)


few, many = (40, 60) if SHORT else (200, 2000)
test_x, test_y = measured(1000, seed=99)

# %% [markdown]
# ## Three kernels
#
# `InputTransformKernel(base_kernel, transform)` is the kernel of transformed inputs. Its transform is any module that
# takes rows one by one, here a linear map (a full metric in place of lengthscales) or a network with two hidden layers
# and 831 weights. Landmarks and blocks of near rows work as for every kernel: near means near for the network.


# %%
def lengthscales(x):
    return gpytorch.kernels.MaternKernel(2.5, ard_num_dims=x.shape[-1])


def linear_map(x):
    return InputTransformKernel(gpytorch.kernels.MaternKernel(2.5), LinearMap(x))


def network(x):
    torch.manual_seed(0)
    layers = [torch.nn.Linear(6, 32), torch.nn.Tanh(), torch.nn.Linear(32, 16), torch.nn.Tanh(), torch.nn.Linear(16, 4)]
    return InputTransformKernel(gpytorch.kernels.MaternKernel(2.5), torch.nn.Sequential(*layers))


def fitted(make, x, y, evaluations):
    """A model trained by the marginal likelihood, so many times evaluated."""
    exact = gpytorch.kernels.ScaleKernel(make(x))
    kernel = rfgp.approximate(exact, min(256, len(x)), method="landmarks", train_inputs=x, seed=0)
    likelihood = gpytorch.likelihoods.GaussianLikelihood()
    model = rfgp.WeightSpaceGP(kernel, likelihood, gpytorch.means.ConstantMean(), block_size=128)
    rfgp.fit(model, x, y, strategy="evidence", max_evaluations=evaluations, progress=False)
    return model


@torch.no_grad()
def scores(model, size):
    """The evidence per row; and of test rows the RMSE, the NLPD and the share inside of 95 % intervals."""
    predicted = model.likelihood(model.posterior(test_x))
    error, deviation = test_y - predicted.mean, predicted.variance.sqrt()
    losses = 0.5 * (error / deviation).square() + deviation.log() + 0.5 * math.log(2.0 * math.pi)
    inside = (error.abs() < 1.96 * deviation).double().mean()
    evidence = model.log_marginal_likelihood() / size
    return [float(value) for value in (evidence, error.square().mean().sqrt(), losses.mean(), inside)]


# %% [markdown]
# ## Few rows: the evidence rises, and the truth does not
#
# With 200 rows we stop the training earlier and later. A user sees the first number, the evidence. The others need
# rows that the model has not seen.

# %%
kernels = (lengthscales, linear_map, network)
steps = (2, 3) if SHORT else (10, 20, 40, 80, 160)
x, y = measured(few, seed=1)
found = {}
print(f"{'kernel':>13} {'evaluations':>11} {'evidence':>9} {'RMSE':>6} {'NLPD':>6} {'inside 95 %':>11}")
for make in kernels:
    for count in steps:
        found[make.__name__, count] = evidence, rmse, nlpd, inside = scores(fitted(make, x, y, count), few)
        print(f"{make.__name__:>13} {count:>11} {evidence:>9.2f} {rmse:>6.2f} {nlpd:>6.2f} {inside:>11.2f}")

# %%
fig, axes = plt.subplots(1, 2, figsize=(7.0, 3.2), layout="constrained")
for ax, column, title in zip(axes, (0, 3), ("log evidence per row", "test rows inside 95 % intervals"), strict=True):
    for place, make in enumerate(kernels):
        values = [found[make.__name__, count][column] for count in steps]
        ax.plot(steps, values, marker="o", color=plots.COLORS[place], label=make.__name__.replace("_", " "))
    ax.set(xscale="log", xticks=steps, xticklabels=steps, xlabel="evaluations", title=title)
    ax.minorticks_off()
axes[1].axhline(0.95, color="#999999", linestyle=":")
axes[1].set_ylim(0.0, 1.05)
axes[0].legend(frameon=False, fontsize=9)
fig.savefig("deep_kernels.png")

# %% [markdown]
# The network has the largest evidence by far, and the longer it is trained the less its intervals cover: after 160
# evaluations half of the measurements are outside. Nothing in training warns. The evidence of a model with a thousand
# weights is a *fit* of these weights, which no integral pays for. Six lengthscales are six numbers, which 200 rows
# determine. A linear map has 36, and lies between: the best of the three at first, and too sure of itself in the end.
#
# ## Many rows: what it can do
#
# Ten times as many rows, and forty evaluations for each.

# %%
x, y = measured(many, seed=1)
for make in kernels:
    evidence, rmse, nlpd, inside = scores(fitted(make, x, y, steps[len(steps) // 2]), many)
    print(f"{make.__name__:>13} {evidence:>9.2f} {rmse:>6.2f} {nlpd:>6.2f} {inside:>11.2f}")

# %% [markdown]
# Now both learned transforms beat lengthscales clearly, and their intervals are as honest. The linear map, with 36
# numbers, is better than the network: the edge is a direction, and that is what there was to find.
#
# ## What to take home
#
# - Count coverage on rows that were put aside before training. The evidence cannot tell, and neither can leaving rows
#   out afterwards, for the network has been learned with them.
# - Try a `LinearMap` first. `RandomFeatureGPRegressor` does so by itself, and keeps it where held-out rows gain.
# - Many rows per weight, small networks, and few evaluations (`max_evaluations`, `time_limit`) keep a deep kernel
#   honest. Where its intervals are too narrow all the same, calibrate them: `rfgp.diagnostics.conformal`, tutorial 18.
# - A transform has to take rows one by one: no batch normalization, and no dropout in training.
