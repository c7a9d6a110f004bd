"""Predictions of rows, and groups of rows, from all others."""
