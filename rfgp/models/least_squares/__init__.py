"""Vector-valued least squares, with unlabeled inputs."""
