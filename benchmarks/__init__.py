"""Benchmarks: a script for each claim; ``python -m benchmarks.papers`` runs those of the papers."""
