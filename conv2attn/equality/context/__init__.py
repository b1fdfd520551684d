"""What stands between the compared layers: a graph of operators in normal form, and one walk through it."""
