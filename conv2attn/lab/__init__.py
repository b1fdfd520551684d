"""Training of the paper's networks, and the page that shows attention."""
