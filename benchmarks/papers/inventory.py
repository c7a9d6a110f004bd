"""Every table and figure that is checked: what it shows in the words of its paper, and the data that it needs."""

from __future__ import annotations

from .item import Item

T21 = "real estimator has a lower variance than its complex counterpart for all distances"
SHARED_DATA = "letter and MNIST (not Mocap and CIFAR-10 features, which are not there)"

ITEMS = (
    Item("T Fig. 2.1", "thesis_2_01", "Gaussian kernel: " + T21, "none"),
    Item(
        "T Fig. 2.3",
        "thesis_2_03",
        "Isotropic fits of polynomial kernels: high degrees are better approximated than low ones; homogeneous "
        "polynomial kernels cannot be matched",
        "none",
    ),
    Item(
        "T Fig. 3.2",
        "thesis_3_02",
        "Mean absolute error of real and complex Rademacher sketches against the degree",
        "none",
        "10 draws, not 100",
    ),
    Item(
        "T Fig. 3.3",
        "thesis_3_03",
        "Ratio of the variances of complex and real TensorSRHT over pairs of rows",
        "MNIST (not EEG, CIFAR-10 features and Gisette, which are not there)",
        "(1) T tells neither the degree nor the padding; with 1,024 columns the share is larger",
    ),
    Item(
        "T Fig. 3.4",
        "thesis_3_04",
        "KL against time: complex features have equal or lower KL than real ones of the same time",
        "Fashion-MNIST",
        "1,000 training rows, D up to 2d, one processor",
    ),
    Item(
        "T Fig. 4.1",
        "thesis_4_01_02",
        "CtR-TensorSRHT outperforms real TensorSRHT (all variance ratios < 1), the more the larger p",
        SHARED_DATA,
    ),
    Item(
        "T Fig. 4.2",
        "thesis_4_01_02",
        "The same on zero-centered data: around half of the variance ratios are above and below 1",
        SHARED_DATA,
    ),
    Item(
        "T Fig. 4.3",
        "thesis_4_03",
        "CtR-TensorSRHT has the lowest KL and test error in the same time as real and complex TensorSRHT",
        "MNIST",
        "1,000 rows for the KL, 5,000 for the error, one processor; (2) complex maps have lower errors at two "
        "of three widths",
    ),
    Item(
        "T Fig. 4.4",
        "thesis_4_04_05",
        "Variance of CtR-TensorSRHT over that of TensorSketch: more than half of the ratios are below 1 for p <= 5",
        SHARED_DATA,
        "fewer pairs and draws; (2) at p = 7 TensorSketch has the lower variance on letter",
    ),
    Item(
        "T Fig. 4.5",
        "thesis_4_04_05",
        "The same for real TensorSRHT: the ratios are much worse",
        SHARED_DATA,
        "fewer pairs and draws",
    ),
    Item(
        "T Fig. 4.6",
        "thesis_4_06",
        "TensorSRHT has the lowest construction times; CtR-TensorSRHT gives the best kernel in the shortest time",
        "MNIST",
        "processor, not P100",
    ),
    Item(
        "T Fig. 4.7",
        "thesis_4_07",
        "Stochastic variational inference: TensorSRHT converges much faster than TensorSketch; CtR has lower errors",
        "MNIST",
        "2,048 columns, one to three epochs, one seed (10,240, 50 to 150 and ten in T)",
    ),
    Item(
        "T Fig. 4.8",
        "thesis_4_08_09",
        "p = 3: the errors are the lowest for CtR-TensorSRHT; KL and test error like those of TensorSketch",
        "MNIST (not letter, Mocap, CIFAR-10)",
        "2 seeds, up to 2d; at 4d, which --full measures, TensorSketch had the lower kernel error for p = 3",
    ),
    Item(
        "T Fig. 4.9",
        "thesis_4_08_09",
        "p = 6: CtR-TensorSRHT and TensorSketch perform similarly, the gain over TensorSRHT increases",
        "MNIST (not letter, Mocap, CIFAR-10)",
        "2 seeds, up to 2d; 4d with --full",
    ),
    Item(
        "T Fig. 4.10",
        "thesis_4_10",
        "p = 6, zero-centered: the advantage of CtR sketches diminishes, but they never perform worse",
        "letter (not Mocap, CIFAR-10 and MNIST)",
        "(1), (2) on letter alone the gain of dense sketches grows",
    ),
    Item(
        "T Fig. 4.11",
        "thesis_table_4_2",
        "Standard deviation of the kernel inception distance against time",
        "MNIST's pixels (not CIFAR-10's Inception features)",
        "40 draws of 2,000 rows; (1), (2) with pixels, subsets are no worse",
    ),
    Item(
        "T Table 4.2",
        "thesis_table_4_2",
        "Standard deviation of the kernel inception distance over draws of the features",
        "MNIST's pixels (not CIFAR-10's Inception features)",
        "40 draws, 2,000 rows of each sample",
    ),
    Item(
        "T Fig. 5.1",
        "thesis_5_01",
        "Variance and bias against the degree: bias decays exponentially, variance too (polynomial: from n = 3 on)",
        "Fashion-MNIST",
        "100 subsamples of 500 rows",
    ),
    Item(
        "T Fig. 5.2",
        "thesis_5_02_08_10",
        "sinc, ten features: Maclaurin features are more accurate than Fourier ones around 0, and collapse far from it",
        "drawn",
        "(3) predictions here add the variance that a truncated series lacks, so that deviations do not collapse",
    ),
    Item(
        "T Fig. 5.3",
        "thesis_5_03",
        "Relative Frobenius errors of sketches and Maclaurin features of polynomial kernels",
        "Fashion-MNIST",
        "1,000 rows, 3 seeds (5,000 and 10 in T)",
    ),
    Item(
        "T Fig. 5.4",
        "thesis_5_04",
        "p = 20: optimized Maclaurin features have lower Frobenius errors than SRF for most cases",
        "letter and MNIST (not Cod_rna, Covertype, Magic and others)",
        "kernel errors alone",
    ),
    Item(
        "T Fig. 5.5",
        "thesis_5_05",
        "Gaussian kernel: optimized Maclaurin features have lower errors and KL than Fourier features",
        "Fashion-MNIST",
        "posteriors of 2,000 rows at 500 points",
    ),
    Item(
        "T Fig. 5.6",
        "thesis_5_06",
        "Maclaurin features are better where distances spread (kin8nm), SRF where they concentrate around 0 (protein)",
        "kin8nm and protein (not Cod_rna and Naval)",
    ),
    Item(
        "T Fig. 5.7", "thesis_5_07", "A truncated series of the Gaussian kernel vanishes away from the origin", "none"
    ),
    Item(
        "T Fig. 5.8",
        "thesis_5_02_08_10",
        "sinc: Maclaurin features with a center per test input give the best approximations",
        "drawn",
    ),
    Item(
        "T Fig. 5.9",
        "thesis_5_09",
        "A map of apartment prices, D = 100: localized Maclaurin features have the lowest KL",
        "drawn in place of UK apartment prices, which are not there",
    ),
    Item(
        "T Fig. 5.10",
        "thesis_5_02_08_10",
        "More centers help yacht (short lengthscale) and harm kin8nm (long lengthscale)",
        "yacht and kin8nm (not UK apartment prices)",
        "T does not tell the noise; (1) is with the one that training finds, 1e-4, where no features suffice",
    ),
    Item(
        "T Fig. D.1",
        "thesis_d_1",
        "Convex surrogates and the variance of TensorSRHT against the number of features",
        "none",
    ),
    Item(
        "T Table D.1",
        "thesis_table_d_1",
        "MNLL and Frobenius error of SRF and optimized Maclaurin features, centered or not, D = 5d",
        "concrete, energy, kin8nm, powerplant, protein, yacht (not Boston, Naval, and the classification sets)",
        "5 splits, not 10; energy has two outputs, whose MNLL T seems to add, and ours is of the first; protein is "
        "standardized here, so that both its rows are centered ones in other units; kernel errors of centered rows are "
        "lower than those printed",
    ),
    Item(
        "T Fig. 6.2",
        "thesis_6_02",
        "Ridge regression on optical features: the error decreases with D; m = 4 converges more slowly than m = 2",
        "Fashion-MNIST",
        "10,000 rows, D up to 2,048 (60,000 and 100,000 in T); (3) needs more rows",
    ),
    Item(
        "B Fig. 3",
        "brault_3",
        "The more features, the closer the approximation of a function is to it, for every draw",
        "drawn",
    ),
    Item(
        "B Fig. 5",
        "brault_5",
        "Decomposable, curl-free and divergence-free kernels have the same convergence rate, up to a factor",
        "drawn",
    ),
    Item(
        "B Fig. 6",
        "brault_6",
        "Norm of the variance below the bound of Proposition 33, decomposable and curl-free",
        "drawn",
        "Proposition 33 is false (a factor of 2 is lost)",
    ),
    Item("B Fig. 8", "brault_8_9_10", "Efficient decomposable features: time and memory against p", "drawn"),
    Item(
        "B Fig. 9",
        "brault_8_9_10",
        "Efficient curl-free features: time and memory against p",
        "drawn",
        "(4) ours is faster than the matrix",
    ),
    Item(
        "B Fig. 10",
        "brault_8_9_10",
        "Efficient divergence-free features: time and memory against p",
        "drawn",
        "(4) ours is faster than the matrix: it forms neither, and its products are those of scalar features",
    ),
    Item(
        "B Fig. 11",
        "brault_11",
        "ORFF scales better than OVK with N, and converges to it with D",
        "MNIST",
        "up to 4,000 rows (12,000 in B)",
    ),
    Item(
        "B Fig. 12",
        "brault_12_13",
        "Curl-free ORFF outperforms independent features; curl-ORFF can be better than curl-OVK",
        "drawn; B does not tell the number of waves",
        "2 seeds; the penalty is the best of a grid for OVK too, which leaves features nothing to regularize",
    ),
    Item(
        "B Fig. 13",
        "brault_12_13",
        "OVK is more accurate at equal N; ORFF reaches its accuracy with D, and takes more data in the same time",
        "drawn",
        "2 seeds; (3) the functions are so smooth that the exact kernel needs no more than 3,000 rows",
    ),
    Item(
        "B Table 3",
        "brault_table_3",
        "Multitask error on SARCOS: a graph Laplacian helps, less so with more rows",
        "rf1 in place of SARCOS, which is not there",
        "other data, 10 draws (80 in B)",
    ),
    Item("M Table 1", "minh_tables_1_2", "Relative error of curl-free and divergence-free features", "drawn"),
    Item(
        "M Table 2",
        "minh_tables_1_2",
        "RMSE of a curl-free field from its features",
        "drawn",
        "M does not say what the RMSE is of; ours is of the length of the error at held-out points",
    ),
    Item(
        "S rates",
        "szabo_rates",
        "Uniform error of kernel derivatives of the order of sqrt(log|S| / m)",
        "drawn",
    ),
)
