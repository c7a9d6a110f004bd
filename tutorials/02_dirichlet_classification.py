# %% [markdown]
# # What the model knows: classification with uncertainty
#
# A classifier that says "seven" should also say how sure it is, and it should be right about that. **Can a Gaussian
# process classify at the price of one regression, and know what it does not know?**
#
# The labels of class c become the targets of a regression, with a noise variance that depends on the label: small
# inside the class, large outside. This is Dirichlet classification (Milios et al., 2018). All classes share one set of
# random features and one pass over the data; each of them adds the factorization of one small matrix.

# %%
import itertools
import math
import os

import gpytorch
import matplotlib.pyplot as plt
import torch
from gpytorch.kernels import PolynomialKernel, RBFKernel, ScaleKernel
from matplotlib.colors import LogNorm, to_rgb
from sklearn.datasets import load_digits

import rfgp
from rfgp.likelihoods import DirichletClassificationLikelihood

SHORT = os.environ.get("RFGP_SHORT") == "1"  # tiny sizes, for a quick check that everything runs
torch.set_default_dtype(torch.float64)
plt.rcParams.update({"axes.spines.top": False, "axes.spines.right": False, "font.size": 10, "savefig.dpi": 160})
INK, BLUE, ORANGE, GREEN = "#222222", "#0072B2", "#D55E00", "#009E73"

# %% [markdown]
# ## Three arms
#
# Points lie on three arms that touch in the middle. Nothing lies outside of the arms, so there are two ways not to
# know the class: the arms overlap, or there are no data.


# %%
def pinwheel(num_rows, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (num_rows,), generator=generator)
    along = (0.55 + 0.26 * torch.randn(num_rows, generator=generator)).abs()
    across = 0.09 * torch.randn(num_rows, generator=generator)
    angle = labels * 2 * math.pi / 3 + 2.2 * torch.exp(-along)
    x = torch.stack([along * angle.cos() - across * angle.sin(), along * angle.sin() + across * angle.cos()], dim=-1)
    return x, labels


x, labels = pinwheel(150 if SHORT else 600, seed=0)
x_valid, labels_valid = pinwheel(100 if SHORT else 400, seed=1)

# %% [markdown]
# The kernel is a polynomial of degree 6, approximated with random features as in the first tutorial. The likelihood
# takes the number of classes; the mean has one constant per class.


# %%
def classifier(num_classes, power, num_features, input_dim):
    kernel = ScaleKernel(PolynomialKernel(power=power))
    kernel = rfgp.approximate(kernel, num_features=num_features, input_dim=input_dim, seed=0)
    likelihood = DirichletClassificationLikelihood(num_classes=num_classes)
    mean = gpytorch.means.ConstantMean(batch_shape=torch.Size([num_classes]))
    return rfgp.models.WeightSpaceGP(kernel, likelihood, mean)


model = classifier(3, power=6, num_features=64 if SHORT else 128, input_dim=2)
print(rfgp.fit(model, x, labels, max_evaluations=3 if SHORT else 40))

# %% [markdown]
# One number is left to choose: `alpha_epsilon`, how firmly a label says that the other classes are wrong. The sums over
# the data do not depend on it, so that trying a grid costs no new pass. The value with the best validation score stays.

# %%
scores = model.likelihood.select_alpha_epsilon(model, x_valid, labels_valid, num_samples=64 if SHORT else 512)
for alpha, score in scores.items():
    print(f"alpha_epsilon = {alpha:g}: mean negative log likelihood {score:.4f}")
print(f"chosen: {model.likelihood.alpha_epsilon:g}")

# %% [markdown]
# `posterior` returns one latent function per class, with mean and variance. `class_probabilities` turns them into
# probabilities, averaged over the uncertainty of the functions. From these we draw three things: the probabilities, as
# a mixture of the colors of the classes; their entropy; and the standard deviation of the latent functions.

# %%
side = torch.linspace(-1.5, 1.5, 41 if SHORT else 101)
points = torch.cartesian_prod(side, side)
with torch.no_grad():
    latent = model.posterior(points)
    probabilities = model.likelihood.class_probabilities(latent, num_samples=64 if SHORT else 4096)
    entropy = -(probabilities * probabilities.clamp_min(1e-12).log()).sum(-1) / math.log(2.0)
    deviation = latent.stddev.mean(0)


def on_grid(values):
    return values.reshape(len(side), len(side), *values.shape[1:]).transpose(0, 1)


palette = torch.tensor([to_rgb(color) for color in (BLUE, ORANGE, GREEN)])
figure, axes = plt.subplots(1, 3, figsize=(10.2, 4.3), layout="compressed", sharex=True, sharey=True)
mixture = 1.0 - 0.75 * (1.0 - probabilities @ palette)
axes[0].imshow(on_grid(mixture).clamp(0, 1), origin="lower", extent=(-1.5, 1.5, -1.5, 1.5), interpolation="bilinear")
filled = axes[1].contourf(side, side, on_grid(entropy), levels=torch.linspace(0, 1.6, 9), cmap="Greys", extend="max")
figure.colorbar(filled, ax=axes[1], location="bottom", shrink=0.8, ticks=[0, 0.5, 1, 1.5], label="entropy (bits)")
levels = torch.logspace(-0.5, 2.5, 13)
filled = axes[2].contourf(side, side, on_grid(deviation), levels=levels, norm=LogNorm(), cmap="Purples", extend="both")
figure.colorbar(
    filled,
    ax=axes[2],
    location="bottom",
    shrink=0.8,
    ticks=[1, 10, 100],
    format="%g",
    label="standard deviation (log odds)",
)
for ax, title in zip(
    axes, ("class probabilities, as colors", "entropy of the class", "sd of the latent functions"), strict=True
):
    for c in range(3):
        style = {"color": tuple(palette[c].tolist()), "markersize": 3.5, "markeredgecolor": "white"}
        ax.plot(*x[labels == c].T, "o", markeredgewidth=0.4, label=f"class {c}", **style)
    ax.set(title=title, aspect="equal", xlim=(-1.5, 1.5), ylim=(-1.5, 1.5), xticks=(-1, 0, 1), yticks=(-1, 0, 1))
    ax.set_xlabel("first input")
axes[0].set_ylabel("second input")
axes[0].legend(loc="lower left", handletextpad=0, framealpha=0.9, edgecolor="none")
figure.savefig("dirichlet_toy.png")

# %% [markdown]
# Read the panels from right to left.
#
# - **Where are there data?** The latent standard deviation is a fraction of one on the arms, and grows by powers of ten
#   away from them. It does not see the labels overlap in the middle, since there are many points.
# - **Where is the class uncertain?** The entropy is high in the middle, where the arms touch, and along the borders
#   between them. On the arms it is zero.
# - **What does the model say far away?** Here is the honest part. Beyond the arms the entropy falls again, and the
#   colors become firm: the lower left corner is "class 0" although no point of that class is near. A polynomial of
#   degree 6 grows without bound, and the mean grows as fast as its standard deviation. So a low entropy alone does not
#   mean that the model has seen anything like it. The latent deviation does tell. Look at both.
#
# ## Handwritten digits
#
# Now real data: 1,797 images of 8 x 8 pixels. Half of them are kept for testing, so that there are enough to look at
# calibration. Of the rest, 700 train the model and 200 choose `alpha_epsilon`. Images are divided by their norm, and
# the kernel has degree 3. We pass a grid with smaller values than the default one.

# %%
x_digits, y_digits = (torch.from_numpy(a) for a in load_digits(return_X_y=True))
order = torch.randperm(len(x_digits), generator=torch.Generator().manual_seed(0))
test, valid, train = order.split([897, 200, 700])
images, z = x_digits.reshape(-1, 8, 8), x_digits / x_digits.norm(dim=-1, keepdim=True)

model = classifier(10, power=3, num_features=64 if SHORT else 512, input_dim=64)
print(rfgp.fit(model, z[train], y_digits[train], max_evaluations=2 if SHORT else 15))
scores = model.likelihood.select_alpha_epsilon(
    model, z[valid], y_digits[valid], grid=(1e-6, 1e-5, 1e-4, 1e-3, 1e-2), num_samples=32 if SHORT else 512
)
for alpha, score in scores.items():
    print(f"alpha_epsilon = {alpha:g}: mean negative log likelihood {score:.4f}")

# %% [markdown]
# The larger values are clearly worse. Among the three smallest the differences are too small for 200 rows to decide,
# and any of them would do. The choice is made, so the 200 rows are free to teach: `update` adds them to the sums, and
# nothing is done again for the other 700.

# %%
with torch.no_grad():
    model.update(z[valid], y_digits[valid])
    latent = model.posterior(z[test])
    generator = torch.Generator().manual_seed(0)
    probabilities = model.likelihood.class_probabilities(latent, num_samples=64 if SHORT else 512, generator=generator)
error = float(rfgp.diagnostics.error_rate(probabilities, y_digits[test]))
mnll = float(rfgp.diagnostics.classification_mnll(probabilities, y_digits[test]))
print(f"error rate {error:.3f}, mean negative log likelihood {mnll:.3f}")

# %% [markdown]
# The six digits that the model is most certain of, and the twelve that it is least certain of, with the probabilities
# of the ten classes below each. The title is what the model says, and how sure it is.

# %%
confidence, predicted = probabilities.max(-1)
ranked = confidence.argsort()
rows = [("most certain", ranked[-6:].flip(0)), ("least certain", ranked[:6]), ("", ranked[6:12])][: 2 if SHORT else 3]
figure = plt.figure(figsize=(9.0, 8.6), layout="constrained")
for panel, (title, members) in zip(figure.subfigures(len(rows), 1, hspace=0.04), rows, strict=True):
    panel.suptitle(title, x=0.01, ha="left", weight="bold")
    axes = panel.subplots(2, 6, height_ratios=(2.2, 1))
    for (top, bottom), i in zip(axes.T, members, strict=True):
        truth = int(y_digits[test[i]])
        top.imshow(images[test[i]], cmap="gray_r", interpolation="nearest")
        top.set(xticks=[], yticks=[])
        top.set_title(f"{int(predicted[i])}, {100 * float(confidence[i]):.0f} %", fontsize=9)
        top.spines[["top", "right"]].set_visible(True)
        top.spines[:].set_color("#BBBBBB")
        colors = ["#C4C4C4"] * 10
        colors[int(predicted[i])] = ORANGE
        colors[truth] = BLUE
        bottom.bar(range(10), probabilities[i], color=colors, width=0.8)
        bottom.set(ylim=(0, 1), yticks=[0, 1] if bottom is axes[1, 0] else [], xticks=range(10))
        bottom.tick_params(axis="x", length=0, labelsize=8)
        bottom.spines["left"].set_visible(False)
    axes[1, 0].set_ylabel("probability", fontsize=8)
names = {BLUE: "the true class", ORANGE: "what the model says, where it is wrong", "#C4C4C4": "the other classes"}
handles = [plt.Rectangle((0, 0), 1, 1, color=color, label=name) for color, name in names.items()]
figure.legend(handles=handles, loc="outside lower center", ncols=3, frameon=False)
figure.savefig("dirichlet_digits.png")

# %% [markdown]
# Are the probabilities right? Two questions. Of the digits for which the model says 70 %, are 70 % correct? And if a
# person looks at the least certain digits, how many errors are left among the others?


# %%
def interval(successes, count):
    """Wilson's interval of about 95 % for a share."""
    share, width = successes / count, 4.0 / count
    center, half = (share + width / 2) / (1 + width), (width * share * (1 - share) + width**2 / 4) ** 0.5 / (1 + width)
    return share, center - half, center + half


correct = (predicted == y_digits[test]).double()
figure, (left, right) = plt.subplots(1, 2, figsize=(8.4, 4.1), layout="constrained")
left.plot([0.3, 1], [0.3, 1], color="#AAAAAA", linewidth=1.2, label="perfect calibration")
edges = (0.0, 0.5, 0.7, 0.85, 0.95, 1.0)
for low, high in itertools.pairwise(edges):
    chosen = (confidence > low) & (confidence <= high)
    if chosen.any():
        share, lower, upper = interval(float(correct[chosen].sum()), int(chosen.sum()))
        place = float(confidence[chosen].mean())
        left.plot([place, place], [lower, upper], color=BLUE, linewidth=1.5)
        left.plot(place, share, "o", color=BLUE)
        left.annotate(f"{int(chosen.sum())}", (place, lower), (0, -12), textcoords="offset points", ha="center")
left.plot([], [], "-o", color=BLUE, label="measured, 95 % interval, number of digits")
left.set(xlabel="confidence of the model", ylabel="share that is correct", ylim=(0, 1.04))
left.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16))

wrong = 1.0 - correct[ranked]
errors_left = torch.cat([wrong.sum().reshape(1), wrong.sum() - wrong.cumsum(0)])
handed = 100.0 * torch.arange(len(errors_left)) / len(test)
right.plot(handed, errors_left, color=BLUE, linewidth=2, drawstyle="steps-post", label="the least certain first")
right.plot(handed, wrong.sum() * (1 - handed / 100.0), color="#AAAAAA", linewidth=1.2, label="in random order")
right.set(xlabel="digits handed to a person (%)", ylabel="errors among the others", xlim=(0, 10), ylim=(0, None))
right.legend(frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.16))
for ax in (left, right):
    ax.grid(True, color="#E5E5E5", linewidth=0.6)
figure.savefig("dirichlet_calibration.png")

# %% [markdown]
# What the three figures say:
#
# - The most certain digits are plain ones, and the least certain look like several classes at once. When the model is
#   wrong, the true class is mostly its second choice. Not always: it takes 4s for an 8 or a 9.
# - The bars on the left (95 % intervals, with the number of digits below) reach the diagonal. That is good news, but
#   weak news: only 58 of the 897 digits have a confidence below 0.95, and a dozen points cannot tell 0.6 from 0.7. Of
#   the 839 others not one is wrong.
# - The right panel is the useful one. The model makes 13 errors. If a person takes the least certain five in a hundred,
#   none of the errors is left. In random order one would have to take them all.
#
# ## Borders that are finer than the landmarks
#
# Digits need few features. Now a problem that needs many: three arms again, wound into spirals, two and a half turns
# each, with borders that are blurred a little. Features that are landmarks, 64 of the rows, are too few to follow every
# turn. `block_size` adds what they leave over: the rows are parted into blocks of near ones, inside of which the kernel
# is exact. All classes share the blocks, as they share the features: one Cholesky factor of every block serves all of
# them.
#
# Parameters come from `strategy="neighbors"`. It predicts rows from the rows near them, with the exact kernel, and
# takes what predicts best. No evidence of all rows is needed, and `alpha_epsilon` is learned along with the kernel.


# %%
def spirals(num_rows, seed):
    generator = torch.Generator().manual_seed(seed)
    labels = torch.randint(0, 3, (num_rows,), generator=generator)
    along = torch.rand(num_rows, generator=generator).sqrt()
    angle = 2 * math.pi * (labels / 3 + 2.5 * along) + 0.5 * torch.randn(num_rows, generator=generator)
    return torch.stack([along * angle.cos(), along * angle.sin()], dim=-1), labels


(x, labels), (x_test, labels_test) = spirals(400 if SHORT else 3000, seed=0), spirals(100 if SHORT else 2000, seed=1)
exact = ScaleKernel(RBFKernel())
kernel = rfgp.approximate(exact, 32 if SHORT else 64, method="landmarks", train_inputs=x, seed=0)
likelihood = DirichletClassificationLikelihood(num_classes=3)
mean = gpytorch.means.ConstantMean(batch_shape=torch.Size([3]))
blocks = rfgp.models.WeightSpaceGP(kernel, likelihood, mean, block_size=32 if SHORT else 128)
print(rfgp.fit(blocks, x, labels, strategy="neighbors", max_evaluations=5 if SHORT else 200))
with torch.no_grad():
    alone = rfgp.models.WeightSpaceGP(kernel, likelihood, mean).condition(x, labels)

# %% [markdown]
# Two models with the same landmarks and the same parameters, with blocks and without, on rows that neither has seen.

# %%
side = torch.linspace(-1.1, 1.1, 31 if SHORT else 121)
points = torch.cartesian_prod(side, side)
draws = 32 if SHORT else 512
figure, axes = plt.subplots(1, 2, figsize=(8.4, 4.4), layout="compressed", sharex=True, sharey=True)
said = {}
for ax, (name, model) in zip(axes, {"landmarks alone": alone, "the same, with blocks": blocks}.items(), strict=True):
    with torch.no_grad():
        colored = likelihood.class_probabilities(model.posterior(points), num_samples=draws)
        said[name] = likelihood.class_probabilities(model.posterior(x_test), num_samples=draws)
    error = float(rfgp.diagnostics.error_rate(said[name], labels_test))
    mnll = float(rfgp.diagnostics.classification_mnll(said[name], labels_test))
    print(f"{name:>21}: error rate {error:.3f}, mean negative log likelihood {mnll:.3f}")
    mixture = 1.0 - 0.75 * (1.0 - colored @ palette)
    ax.imshow(on_grid(mixture).clamp(0, 1), origin="lower", extent=(-1.1, 1.1, -1.1, 1.1), interpolation="bilinear")
    for c in range(3):
        style = {"color": tuple(palette[c].tolist()), "markersize": 2.5, "markeredgecolor": "white"}
        ax.plot(*x_test[:300][labels_test[:300] == c].T, "o", markeredgewidth=0.3, **style)
    ax.set(title=f"{name}: {100 * error:.1f} % wrong", aspect="equal", xticks=(-1, 0, 1), yticks=(-1, 0, 1))
figure.savefig("dirichlet_spirals.png")

# %% [markdown]
# On the left there is color where a landmark happens to be, and gray, all classes alike, where none is near. On the
# right every arm keeps its color to the end. What is still wrong lies where the arms are blurred, which no model can
# undo.
#
# ## One number for calibration
#
# The regression of labels is an approximation, and its probabilities may be too firm or too modest, all of them alike.
# A *temperature* T corrects that: probabilities are raised to the power 1/T and normalized. The order of the classes
# stays, and with it the error rate. It is one number, and a few hundred rows choose it. These must be rows that the
# model has not seen: here the first half of the test rows, and the second half judges.

# %%
half = len(labels_test) // 2
for name, values in said.items():
    temperature = rfgp.diagnostics.recalibrate_temperature(values[:half], labels_test[:half])
    print(f"{name}: temperature {temperature.value:.2f}")
    for when, judged in {"before": values[half:], "after": temperature(values[half:])}.items():
        mnll = float(rfgp.diagnostics.classification_mnll(judged, labels_test[half:]))
        ece = float(rfgp.diagnostics.expected_calibration_error(judged, labels_test[half:], 10))
        print(f"  {when:>6}: mean negative log likelihood {mnll:.3f}, calibration error {ece:.3f}")

# %% [markdown]
# The landmarks alone are too modest: they are right more often than they say, and a temperature of 0.4 brings them
# close. It cannot bring them the turns that they do not see. With blocks the temperature is near one, and there is
# nothing left to correct. **Let the model follow the data first, and calibrate afterwards.**
#
# `RandomFeatureGPClassifier` of `rfgp.sklearn` does all of this by itself: blocks, parameters from near rows, and the
# temperature. It also compares itself with class frequencies and with a linear model.
#
# Things to know:
#
# - `alpha_epsilon` decides how firm the probabilities are, so choose it on rows that are not used for testing. The
#   kernel of the digits was trained with the default of 0.01. It can be trained again afterwards.
# - Blocks need landmarks, and the model then keeps its rows: predictions use the nearest of them. Sums of blocks depend
#   on `alpha_epsilon`, so a grid of it is no longer free; near rows learn it.
# - All classes share the offset of the kernel. Their means can differ, and so can their output scales if the
#   `ScaleKernel` gets a batch shape. This is why one pass over the data is enough for all of them.
# - Memory grows with the number of classes times the square of the number of features.
# - The regression treats transformed labels as Gaussian. It is an approximation of a classification likelihood, a good
#   one here, and it is judged by calibration on held-out data, as above.
