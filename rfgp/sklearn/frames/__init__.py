"""Columns of data frames as numbers: cells of any kind, and the inputs that a column becomes."""
