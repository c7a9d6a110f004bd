"""Private helpers that any room may use: checks, files, private names of GPyTorch. They know no Gaussian process."""
