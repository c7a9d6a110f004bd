# %% [markdown]
# # A hundred experiments a round
#
# Bayesian optimization was made for experiments that are dear: one a day, fifty in all. Some laboratories are not
# like that. A robot fills a plate with a hundred small vessels, measures them all with some noise, and asks what to
# put into the next hundred. After an afternoon there are thousands of measurements. **Which hundred out of a hundred
# thousand recipes should it try next, and can one still ask a Gaussian process?**
#
# A Gaussian process answers with functions that it believes in. Draw a hundred of them, take the best recipe of each:
# that is Thompson sampling, and it makes a batch that explores and exploits at once. The catch is the price. The
# exact model, BoTorch's `SingleTaskGP`, costs N cubed for N measurements. `rfgp.botorch.WeightSpaceModel` has the
# same interface and the same priors on random features, and costs the same after the first measurement and the last.

# %%
import os
import time

import matplotlib.pyplot as plt
import torch
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.sampling.pathwise import draw_matheron_paths
from botorch.test_functions import Hartmann
from gpytorch.mlls import ExactMarginalLogLikelihood
from torch.quasirandom import SobolEngine

from rfgp.botorch import WeightSpaceModel

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
torch.set_default_dtype(torch.float64)
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})
INK, BLUE, ORANGE = "#222222", "#0072B2", "#D55E00"
BATCH, CANDIDATES, FEATURES = (5, 2_000, 64) if SHORT else (100, 100_000, 1024)

# %% [markdown]
# ## The recipes
#
# Our laboratory is Hartmann's function: six ingredients between 0 and 1, several hills, the highest 3.32. Every
# measurement has noise with a standard deviation of 0.2, so that the largest measurement is not the best recipe.

# %%
function = Hartmann(dim=6, negate=True)
NOISE = 0.2


def measure(recipes, generator):
    return function(recipes).unsqueeze(-1) + NOISE * torch.randn(len(recipes), 1, generator=generator)


generator = torch.Generator().manual_seed(0)
x = SobolEngine(6, scramble=True, seed=0).draw(2 * BATCH)
y = measure(x, generator)
print(f"{len(x)} recipes, the best of them {function(x).max():.2f} of {function.optimal_value:.2f}")

# %% [markdown]
# ## A model in BoTorch's words
#
# Nothing here is new to you if you know BoTorch. The model takes the data, `fit_gpytorch_mll` learns lengthscales and
# noise, and what comes out is a posterior at as many points as you like.

# %%
torch.manual_seed(0)
model = WeightSpaceModel(x, y, num_features=FEATURES, seed=0)
fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
posterior = model.posterior(x[:4])
print("means     ", *[f"{value:.2f}" for value in posterior.mean.flatten()])
print("deviations", *[f"{value:.2f}" for value in posterior.variance.sqrt().flatten()])
print("truth     ", *[f"{value:.2f}" for value in function(x[:4])])

# %% [markdown]
# ## A hundred functions at a hundred thousand recipes
#
# `sample_functions` draws whole functions. They are callables, so that they can be evaluated anywhere, now and later,
# and all of them at once. The exact joint posterior at 100,000 points would be a matrix of 80 gigabytes.
#
# Half of the candidates are spread over the whole cube, and half are near recipes that are good so far.


# %%
def candidates(model, x, seed):
    """Recipes everywhere, and near the ten of which the model thinks best."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        best = x[model.posterior(x.unsqueeze(1)).mean.flatten().topk(10).indices]
    near = best.repeat(CANDIDATES // 20, 1)
    near = (near + 0.05 * torch.randn(near.shape, generator=generator)).clamp(0.0, 1.0)
    return torch.cat([SobolEngine(6, scramble=True, seed=seed).draw(CANDIDATES // 2), near])


def best_of_each(functions, recipes):
    """The best recipe of every function, a part of the recipes at a time."""
    with torch.no_grad():
        values = torch.cat([functions(part).squeeze(-1) for part in recipes.split(10_000)], dim=-1)
    return recipes[values.argmax(dim=-1)]


began = time.process_time()
recipes = candidates(model, x, seed=1)
plate = best_of_each(model.sample_functions(BATCH), recipes)
print(f"{len(plate)} recipes out of {len(recipes)} in {time.process_time() - began:.1f} s")
print(f"the first plate was worth {function(x).mean():.2f} on average, this one is worth {function(plate).mean():.2f}")

# %% [markdown]
# ## New measurements, old parameters
#
# The plate is measured, and the model learns from it: a hundred rows are a hundred columns in an update of its
# weights. Nothing is refitted, and the measurements from before are not looked at.

# %%
began = time.process_time()
more = model.condition_on_observations(plate, measure(plate, generator))
print(f"conditioned on {len(plate)} measurements in {1000 * (time.process_time() - began):.0f} ms")

# %% [markdown]
# ## A race
#
# Now both models get the same number of seconds of a processor, the same first two plates, the same candidates and
# the same rule: whenever the number of measurements has grown by a half, lengthscales and noise are learned anew. In
# between they are kept, and new measurements only condition the model.
#
# `SingleTaskGP` gets the best sampler that BoTorch has for it, Matheron's rule: a function of random features as a
# draw from the prior, and an exact correction with a kernel function at every measurement. It needs no large matrix
# either.
#
# What we plot is what a chemist would ask for: the true value of the recipe which the model would choose if it had to
# stop now, the measured one with the highest posterior mean.


# %%
class Ours:
    name, color = "WeightSpaceModel", BLUE

    def learn(self, x, y):
        self.model = WeightSpaceModel(x, y, num_features=FEATURES, seed=0)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(self.model.likelihood, self.model))

    def add(self, x, y, count):
        self.model = self.model.condition_on_observations(x[-count:], y[-count:])

    def functions(self):
        return self.model.sample_functions(BATCH)


class Exact:
    name, color = "SingleTaskGP", ORANGE

    def learn(self, x, y):
        self.model = SingleTaskGP(x, y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(self.model.likelihood, self.model))

    def add(self, x, y, count):
        state, self.model = self.model.state_dict(), SingleTaskGP(x, y)
        self.model.load_state_dict(state, keep_transforms=False)
        self.model.eval()

    def functions(self):
        return draw_matheron_paths(self.model, torch.Size([BATCH]))


def race(runner, seed, seconds):
    """Seconds, measurements, and the true value of what the model would choose, after every plate."""
    torch.manual_seed(seed)
    generator = torch.Generator().manual_seed(seed)
    x = SobolEngine(6, scramble=True, seed=seed).draw(2 * BATCH)
    y, learned, history = measure(x, generator), 0, []
    began = time.process_time()
    while time.process_time() - began < seconds:
        if len(x) >= 1.5 * learned:
            runner.learn(x, y)
            learned = len(x)
        else:
            runner.add(x, y, BATCH)
        recipes = candidates(runner.model, x, seed=1000 * seed + len(x))
        with torch.no_grad():
            choice = x[runner.model.posterior(x.unsqueeze(1)).mean.argmax()]
        history.append((time.process_time() - began, len(x), float(function(choice))))
        plate = best_of_each(runner.functions(), recipes)
        x, y = torch.cat([x, plate]), torch.cat([y, measure(plate, generator)])
    return history


seeds, seconds = ([0], 0.5) if SHORT else ([0, 1], 40.0)
histories = {kind: [race(kind(), seed, seconds) for seed in seeds] for kind in (Ours, Exact)}
for kind, runs in histories.items():
    last = [run[-1] for run in runs]
    print(
        f"{kind.name:>16}: measurements {[count for _, count, _ in last]}, regret "
        f"{[round(function.optimal_value - value, 4) for *_, value in last]}"
    )

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9.0, 3.8), layout="constrained")
for kind, runs in histories.items():
    for number, run in enumerate(runs):
        times, counts, values = zip(*run, strict=True)
        regrets = [max(function.optimal_value - value, 1e-4) for value in values]
        left.plot(times, counts, color=kind.color, label=kind.name if number == 0 else None)
        right.semilogy(times, regrets, color=kind.color)
left.set(xlabel="processor seconds", ylabel="measurements", title="plates that were filled")
right.set(xlabel="processor seconds", ylabel="3.322 - true value of the choice", title="how far from the best recipe")
left.legend(frameon=False)
figure.savefig("hundred_experiments.png")

# %% [markdown]
# On one core of a busy server, in 40 seconds of a processor, the weight-space model came to 800 measurements, the
# exact one to 300. The recipes that they would then choose were 0.31 and 0.13 below the best possible one (two
# starts), against 0.43 and 0.40. Measurement for measurement neither is ahead: at 300, our model stood at 0.54 and
# 0.24. Two starts tell little about that, and the noise of 0.2 hides which of the good recipes is the best; the
# number of plates is the solid part.
#
# What costs the exact model the race is not its Cholesky factor, with 300 rows a trifle, but a hundred of its draws
# at 100,000 candidates: some 25 seconds a plate, where ours take 3.5. With few candidates, and fewer
# measurements than features, take `SingleTaskGP`: then it is cheaper, and has no error of features.
#
# ## With a few measurements left
#
# Thompson sampling is for plates. Where only a few measurements are left, qLogNEI makes better use of them: it looks
# for the points at which the best value is expected to rise most. Any acquisition function of BoTorch takes either
# model, because a `WeightSpaceModel` *is* a model of BoTorch. One step, with two points:

# %%
count = 20 if SHORT else 1500
x = SobolEngine(6, scramble=True, seed=5).draw(count)
y = measure(x, generator)
ours = WeightSpaceModel(x, y, num_features=FEATURES, seed=0)
exact = SingleTaskGP(x, y)
bounds = torch.stack([torch.zeros(6), torch.ones(6)])
effort = {"num_restarts": 1, "raw_samples": 8} if SHORT else {"num_restarts": 4, "raw_samples": 64}
for name, part in (("WeightSpaceModel", ours), ("SingleTaskGP", exact)):
    torch.manual_seed(0)
    began = time.process_time()
    fit_gpytorch_mll(ExactMarginalLogLikelihood(part.likelihood, part))
    fitted = time.process_time()
    acquisition = qLogNoisyExpectedImprovement(part, x)
    points, _ = optimize_acqf(acquisition, bounds, q=2, options={"maxiter": 5 if SHORT else 50}, **effort)
    print(
        f"{name:>16}: fit {fitted - began:.1f} s, qLogNEI {time.process_time() - fitted:.1f} s, true values "
        f"{[round(float(value), 2) for value in function(points)]}"
    )

# %% [markdown]
# With 1,500 measurements, learning the parameters took 12 seconds against 30, and the step 2.3 against 2.5; both models
# proposed points of about the same worth. The exact model's share grows with the cube of the measurements from here on,
# and ours in proportion to them.
