"""Results as things to read and to look at."""
