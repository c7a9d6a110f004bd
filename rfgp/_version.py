"""The version of the package, which is that of its tag."""

from importlib.metadata import version

__version__ = version("rfgp")
