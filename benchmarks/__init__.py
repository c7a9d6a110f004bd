"""Benchmarks: scripts of their own, but for the folder ``papers``, which runs as ``python -m benchmarks.papers``."""
