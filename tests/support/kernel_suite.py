"""GPyTorch's own test suite of kernels, over kernels that a function makes."""

import unittest

import torch
from gpytorch.test.base_kernel_test_case import BaseKernelTestCase
from problems import in_domain


def suite(create, create_ard=None, domain="real", **members):
    """GPyTorch's kernel suite, unmodified, over kernels made by ``create`` (and ``create_ard`` where ARD exists).

    ``create`` is also told the number of columns that the kernel will see. Inputs are made those of a domain.
    """

    def no_ard(self, **options):
        # where two kernels are compared, the second one gets the columns that are active in the first one
        self.columns = len(options["active_dims"]) if "active_dims" in options else getattr(self, "columns", 2)
        return create(columns=self.columns, **options)

    members |= {"seed": 0, "create_kernel_no_ard": no_ard}
    if create_ard is not None:
        members["create_kernel_ard"] = lambda self, num_dims, **options: create_ard(
            columns=num_dims, ard_num_dims=num_dims, **options
        )
    if domain != "real":
        for name in ("single_batch", "double_batch"):
            draw = getattr(BaseKernelTestCase, f"create_data_{name}")
            members[f"create_data_{name}"] = lambda self, draw=draw: in_domain(draw(self), domain)
        members["create_data_no_batch"] = sphere_in_parts if domain == "sphere" else lambda self: torch.rand(50, 10)
    return type("Suite", (BaseKernelTestCase, unittest.TestCase), members)


def sphere_in_parts(self):
    """Rows (50, 10) whose columns 0, 2, 4, 6 and whose columns 3 to 8, the ones that the suite uses, have norm 1."""
    x = torch.randn(50, 10)
    x[:, [0, 2, 4, 6]] = torch.nn.functional.normalize(x[:, [0, 2, 4, 6]], dim=-1)
    rest = (1.0 - x[:, [4, 6]].square().sum(-1, keepdim=True)).sqrt()
    x[:, [3, 5, 7, 8]] = rest * torch.nn.functional.normalize(x[:, [3, 5, 7, 8]], dim=-1)
    return x
