"""Numbers and maps: grids, token-mixing operators, `Basis`, and bounds on their results; no nn.Module."""
