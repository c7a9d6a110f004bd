"""BoTorch's own tests with an exact kernel, and with one of features, as what SingleTaskGP takes by default.

The wheel of BoTorch has no tests: --botorch is a checkout of its repository, whose tests run against the BoTorch that
is installed. Three kernels take turns: BoTorch's own default; the kernel that rfgp.approximate makes of it; and the
same features in a plain GPyTorch kernel, whose matrices are dense. What is printed is which tests fail with each, and
which with rfgp's kernel alone. Where the tests ask for an RBFKernel, a kernel that approximates one is let through, so
that they go on to what they test.
"""

import os
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import common

FILES = ("models/test_gp_regression.py", "test_end_to_end.py", "models/test_model_list_gp_regression.py")
KERNELS = ("exact", "dense", "rfgp")
CHOICE = "RFGP_BOTORCH_SUITE_KERNEL"


def make_kernel(default, kind, **options):
    """The kernel of a kind that stands for BoTorch's default."""
    sys.path.insert(0, str(Path(__file__).parent.parent / "tests" / "support"))
    from dense_features import DenseFeatureKernel

    import rfgp

    exact = default(**options)
    if kind == "exact":
        return exact
    dims = options.get("active_dims")
    approximated = rfgp.approximate(exact, 8, input_dim=options["ard_num_dims"] if dims is None else None, seed=0)
    return approximated if kind == "rfgp" else DenseFeatureKernel(approximated)


def pytest_configure(config):
    """Where pytest loads this file as a plugin, BoTorch's default kernel becomes that of the environment."""
    import functools

    import botorch.models.gp_regression as regression

    default = regression.get_covar_module_with_dim_scaled_prior
    regression.get_covar_module_with_dim_scaled_prior = functools.partial(make_kernel, default, os.environ[CHOICE])
    make = regression.SingleTaskGP.__init__

    @functools.wraps(make)
    def make_and_name(self, *args, **options):
        make(self, *args, **options)
        if hasattr(self, "_subset_batch_dict"):  # BoTorch lists the names of its own default kernel
            names = [name for name, _ in self.named_parameters() if name.endswith("raw_lengthscale")]
            self._subset_batch_dict.update(dict.fromkeys(names, -3))

    regression.SingleTaskGP.__init__ = make_and_name


class _OrApproximated(type):
    def __instancecheck__(cls, instance):
        return isinstance(instance, cls.__mro__[1]) or hasattr(instance, "exact_kernel") or hasattr(instance, "inner")


def pytest_collection_modifyitems(items):
    """Let the tests take kernels that approximate an RBFKernel for one."""
    for module in {item.module for item in items if hasattr(item.module, "RBFKernel")}:
        module.RBFKernel = _OrApproximated("RBFKernel", (module.RBFKernel,), {})


def failures(checkout, kind, files):
    """Names of the tests that fail with a kernel, with the first line of what they say, and how many ran."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.xml"
        paths = [str(checkout / "test" / file) for file in files]
        here = str(Path(__file__).parent)
        environment = {**os.environ, CHOICE: kind, "PYTHONPATH": os.pathsep.join([here, str(Path(here).parent)])}
        command = [sys.executable, "-m", "pytest", *paths, "-q", "-p", Path(__file__).stem, f"--junitxml={report}"]
        # outside the checkout, whose botorch would hide the installed one
        subprocess.run(
            [*command, "--import-mode=importlib", "-c", os.devnull, "--rootdir", folder],
            cwd=folder,
            env=environment,
            stdout=subprocess.DEVNULL,
            check=False,
        )
        cases = list(ElementTree.parse(report).iter("testcase"))
    failed = {}
    for case in cases:
        for problem in (*case.findall("failure"), *case.findall("error")):
            name = f"{case.get('classname').split('.')[-1]}.{case.get('name')}"
            failed[name] = problem.get("message").splitlines()[0]
    return failed, len(cases)


def main():
    parser = common.arguments(__doc__, "botorch_suites")
    parser.add_argument("--botorch", type=Path, help="a checkout of BoTorch's repository")
    parser.add_argument("--files", nargs="+", default=FILES, help="test files, relative to its folder test")
    arguments = parser.parse_args()
    if arguments.botorch is None:
        parser.error("expected --botorch PATH, a checkout of BoTorch's repository, got nothing; clone it")
    files = list(FILES[:1] if arguments.quick else arguments.files)
    result = {"environment": common.environment(), "files": files, "tests": {}, "failures": {}}
    for kind in KERNELS:
        found, result["tests"][kind] = failures(arguments.botorch.resolve(), kind, files)
        result["failures"][kind] = found
        print(f"{kind}: {len(found)} of {result['tests'][kind]} fail")
        for name, message in found.items():
            print(f"    {name}: {message}")
    alone = sorted(result["failures"]["rfgp"].keys() - result["failures"]["dense"].keys())
    result["with_rfgp_alone"] = alone
    common.write(arguments.out, result)
    print(f"with rfgp's kernel and not with the dense one of the same features: {alone or 'none'}")


if __name__ == "__main__":
    main()
