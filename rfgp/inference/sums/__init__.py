"""From rows to sums: statistics, how rows are added to them, and their gradients."""
