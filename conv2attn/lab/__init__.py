"""Training of the paper's networks, and the page on which attention is explored."""
