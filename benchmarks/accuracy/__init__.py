"""The methods that ``accuracy_per_second.py`` compares, each on the same rows."""
