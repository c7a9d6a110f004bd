"""Posteriors for likelihoods that are not Gaussian: Laplace approximations, and variational ones."""
