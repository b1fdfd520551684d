"""The paper's experiments: its tables, its training runs, its figures, and the pruning of degenerate heads."""
