"""The compiled library: everything else is in pyproject.toml."""

import sysconfig

from setuptools import Extension, setup

FLAGS = ["-std=c++17", "-O3", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast", "-Wno-psabi"]
has_stable_interface = not sysconfig.get_config_var("Py_GIL_DISABLED")  # one wheel for all versions of Python

setup(
    ext_modules=[
        Extension(
            "rfgp.linalg._last_rows",
            ["rfgp/linalg/last_rows.cpp", "rfgp/linalg/class_rows.cpp"],
            depends=["rfgp/linalg/lanes.h"],
            extra_compile_args=FLAGS,
            py_limited_api=has_stable_interface,
            optional=True,  # PyTorch does the same, more slowly
        )
    ],
    options={"bdist_wheel": {"py_limited_api": "cp311"}} if has_stable_interface else {},
)
