"""Numbers and maps: grids, token-mixing operators, `Basis`, and bounds on what they compute; no nn.Module."""
