# %% [markdown]
# # Which inputs matter
#
# A borehole connects two aquifers, and water flows through it from the upper one to the lower one. How much, depends
# on eight numbers: the radius of the hole, how well water moves through rock, how high it stands. None of them is
# known exactly. **Which of the eight is worth measuring better?**
#
# The question has an answer in numbers. Draw all inputs at random, and the flow has a variance. The *first-order
# index* of an input is the share of it that would be gone, on average, if this input were known. The *total index* is
# the share that would be left if all others were known. Where the two differ, the input works through others.
#
# The usual way to compute them asks the simulator thousands of times. Let a run take an hour, so that we have a hundred
# of them. A Gaussian process learns the flow from these, and its indices have a closed form. It also says how well it
# knows them.

# %%
import os

import matplotlib.pyplot as plt
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import LinearMean
from torch.quasirandom import SobolEngine

import rfgp
from rfgp.diagnostics.sensitivity import (
    Normal,
    Uniform,
    derivative_sensitivities,
    main_effects,
    propagate,
    sobol_indices,
)

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})

# %% [markdown]
# ## The inputs, with units
#
# What is known about each input is a distribution, in the units that engineers use. The radius is normal, since many
# boreholes have been measured; of the others we know ranges. They are independent: that is an assumption, and all
# that follows rests on it.

# %%
INPUTS = {
    "radius of the hole, m": Normal(0.10, 0.0162),
    "radius of influence, m": Uniform(100.0, 50_000.0),
    "upper transmissivity, m²/a": Uniform(63_070.0, 115_600.0),
    "upper head, m": Uniform(990.0, 1_110.0),
    "lower transmissivity, m²/a": Uniform(63.1, 116.0),
    "lower head, m": Uniform(700.0, 820.0),
    "length, m": Uniform(1_120.0, 1_680.0),
    "conductivity, m/a": Uniform(9_855.0, 12_045.0),
}


def flow(x):
    """The flow through the borehole in m³/a (Harper and Gupta, 1983)."""
    hole, influence, upper, upper_head, lower, lower_head, length, conductivity = x.unbind(-1)
    log_ratio = torch.log(influence / hole)
    leak = 2.0 * length * upper / (log_ratio * hole.square() * conductivity)
    return 2.0 * torch.pi * upper * (upper_head - lower_head) / (log_ratio * (1.0 + leak + upper / lower))


# %% [markdown]
# ## A hundred runs
#
# Runs are spread over what the inputs may be by a Sobol' sequence, which leaves no corner empty. Of the normal radius
# we take the middle 99.8 %. The model is the usual one: a Gaussian kernel with a lengthscale for each input, around a
# plane. A simulator has no noise, so the likelihood starts with little. Features are random, and a single draw of them
# does not know what it lost: the model mixes eight draws, and where these differ its intervals are wider.

# %%
count, width, evaluations, draws = (60, 64, 15, 2) if SHORT else (100, 512, 100, 8)
levels = 0.001 + 0.998 * SobolEngine(8, scramble=True, seed=0).draw(count, dtype=torch.float64)
x = torch.stack([known.quantile(levels[:, k]) for k, known in enumerate(INPUTS.values())], dim=-1)
y = flow(x)

exact = ScaleKernel(RBFKernel(ard_num_dims=8))
kernel = rfgp.approximate(exact, width, input_dim=8, method="fourier_orthogonal", seed=0)
model = rfgp.WeightSpaceGP(kernel, GaussianLikelihood(), LinearMean(8), num_draws=draws)
print(rfgp.fit(model, x, y, max_evaluations=evaluations, progress=False))

# %% [markdown]
# Before anything is read from the model, ask whether it knows the simulator. Leaving out each run and predicting it
# from the others costs no further run.

# %%
left_out = model.leave_one_out(x, y)
error = (left_out.mean - y).square().mean().sqrt() / y.std()
print(f"error of runs that were left out: {error:.1%} of the standard deviation of the flow")

# %% [markdown]
# ## The answer
#
# Features of shift-invariant kernels are waves, and the mean of a wave over an uncertain input is the characteristic
# function of that input, which is known for uniform and normal inputs. All variances follow, with no sampling of the
# inputs. The intervals come from functions drawn from the posterior: each of them might be the simulator, as far as a
# hundred runs can tell, and each has indices of its own.

# %%
indices = sobol_indices(model, INPUTS)
print(indices.table())

# %%
names = [name.partition(",")[0] for name in INPUTS]
figure, ax = plt.subplots(figsize=(9.0, 3.8), layout="constrained")
rfgp.study.plots.sobol_bars(
    names, indices.first.value, indices.total.value, indices.first.interval(), indices.total.interval(), ax=ax
)
ax.tick_params(axis="x", labelrotation=25)
ax.set_ylabel("share of the variance of the flow")
figure.savefig("borehole_indices.png")

# %% [markdown]
# Two thirds of the variance is the radius of the hole. Heads and the length share what is left, a tenth each.
# Transmissivities and the radius of influence do nothing: they can be fixed at any value. Nobody would guess this from
# the formula, and nobody has to. First-order and total indices hardly differ, so inputs act nearly one by one.
#
# Here the simulator is a formula, so we can check by what would otherwise be out of reach: nearly a million runs.

# %%
size = 2_000 if SHORT else 100_000
a, b = (torch.stack([known.sample(size) for known in INPUTS.values()], dim=-1) for _ in range(2))
whole = flow(a).var()
print("total indices by the model, and by", f"{size * 9:,} runs")
for k, name in enumerate(names):
    changed = a.clone()
    changed[:, k] = b[:, k]
    total = 0.5 * (flow(a) - flow(changed)).square().mean() / whole
    low, high = (end[k] for end in indices.total.interval())
    print(f"  {name:<22} {indices.total.value[k]:.4f} ({low:.4f}, {high:.4f})   {total:.4f}")

# %% [markdown]
# They agree to about 0.002, and so many runs have an error of that size themselves.
#
# ## In which direction
#
# An index says how much, and not which way. The main effect of an input is the mean of the flow where this input is
# known. It has a closed form for the same reason, and the band says where the model is not sure.

# %%
effects = main_effects(model, INPUTS)
chosen = indices.total.value.argsort(descending=True)[:4]
low, high = effects.effect.interval()
figure, ax = plt.subplots(figsize=(6.2, 4.0), layout="constrained")
rfgp.study.plots.main_effects(
    [names[k] for k in chosen],
    effects.grid[:, chosen],
    effects.effect.value[:, chosen],
    (low[:, chosen], high[:, chosen]),
    ylabel="mean flow, m³/a",
    ax=ax,
)
figure.savefig("borehole_effects.png")

# %% [markdown]
# The flow grows with the radius, faster than in proportion. The two heads act in opposite directions, as they should:
# what drives the water is their difference.
#
# ## Which inputs can be fixed
#
# A total index near zero says that an input can be fixed. Derivatives give an upper bound of it, which is cheap, and
# which screens inputs where there are many. It is crude where a function bends.

# %%
bound = derivative_sensitivities(model, INPUTS).total_bound()
for name, total, at_most in zip(names, indices.total.value, bound.value, strict=True):
    print(f"  {name:<22} total {total:.4f}, at most {at_most:.4f}")

# %% [markdown]
# ## What the flow will be
#
# The second question of an uncertainty study: with all this uncertainty, how large may the flow be? Two things are
# unknown, the inputs and, after a hundred runs only, the simulator. `propagate` keeps them apart.

# %%
LIMIT = 150.0  # m³/a
known = propagate(model, INPUTS, num_points=2_000 if SHORT else 20_000)
print(f"flow {known.mean:.1f} ± {known.std:.1f} m³/a; inputs {known.input_std:.1f}, model {known.model_std:.1f}")
chance, extreme = known.exceedance(LIMIT), known.quantile(0.99)
print(f"more than {LIMIT:g} m³/a with probability {chance.mean:.4f} ± {chance.std:.4f}")
print(f"one borehole in a hundred has more than {extreme.mean:.0f} ± {extreme.std:.0f} m³/a")
print(f"by the simulator itself: {(flow(a) > LIMIT).double().mean():.4f}, and {flow(a).quantile(0.99):.0f} m³/a")

# %% [markdown]
# The spread is that of the inputs: a hundred runs were enough, and more of them would be wasted. What would help is a
# caliper. Let us see what it buys: the radius measured to a millimeter, all else as before.

# %%
measured = INPUTS | {"radius of the hole, m": Normal(0.10, 0.001)}
after = propagate(model, measured, num_points=2_000 if SHORT else 20_000)
print(f"with the radius known to 1 mm: {after.mean:.1f} ± {after.std:.1f} m³/a")

# %% [markdown]
# ## All of it in one call
#
# A study of runs needs no choice of a kernel or of features. `rfgp.study.uncertainty` fits exact models, predicts every
# run by the others, and has indices, main effects, quantiles and the next runs. Its intervals also know that
# lengthscales are uncertain. Printed, it is a page; `study.report("borehole.html")` writes it with figures.

# %%
study = rfgp.study.uncertainty(x, y, INPUTS, thresholds={"y": LIMIT})
print(study)

# %% [markdown]
# ## What one learns, and what not
#
# Indices are those of a model. They are as good as the model is, which is why runs were left out first, and why the
# intervals are there. These know about the runs that were not made, and, by the eight draws of the features, about what
# features lose. Those of `sobol_indices` take the lengthscales as known; those of the study do not. Neither knows about
# a kernel that is wrong: a simulator with a jump, or one that varies much faster in one corner, has narrower intervals
# than it deserves.
#
# And indices are shares of a variance over inputs that were taken to be independent. Where they are not, pass draws of
# them to `propagate`, whose result needs no such assumption.
