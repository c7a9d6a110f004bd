"""From sums to posteriors of weights, and from these to predictions: one abstract posterior."""
