"""Questions to attention and their answers: rows, targets, limits, one condition."""
