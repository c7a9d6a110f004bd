"""Private helpers that any room may use: checks, files, optional packages, private names of GPyTorch and PyTorch."""
