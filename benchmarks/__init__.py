"""Benchmarks: scripts of their own, which ``python -m benchmarks`` and ``python -m benchmarks.papers`` run."""
