"""A function and the logarithm of its noise, which both depend on the inputs."""
