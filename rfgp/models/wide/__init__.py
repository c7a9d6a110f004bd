"""Means of more features than a matrix of them fits in memory."""
