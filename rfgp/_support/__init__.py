"""Private helpers that any room may use: checks, files, optional packages, the private names of GPyTorch and PyTorch.

They know nothing of Gaussian processes.
"""
