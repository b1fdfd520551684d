"""Training of the paper's networks, the pruning of degenerate heads, and the page on which attention is explored."""
