"""Laplace approximations for likelihoods that are not Gaussian."""
