"""Are two networks the same code, but for their layers? And runs of one with the layers of the other."""
