"""The layers of two networks, compared as values: places, weights, leaks, bounds, rows of the report."""
