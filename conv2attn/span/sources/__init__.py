"""Where the rows of attention come from: arrays, our own layers, numbers that are declared exact."""
