"""The version of the package, which is that of its tag."""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("rfgp")
except PackageNotFoundError:  # a checkout that is on the path without being installed
    __version__ = "0+checkout"
