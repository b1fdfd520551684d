"""What is asked of attention, and what was found: rows, targets, limits, one condition."""
