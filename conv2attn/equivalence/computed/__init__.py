"""What a device makes of a layer: its arithmetic, the rounding of it, and outputs side by side."""
