"""Variational inference from minibatches."""
