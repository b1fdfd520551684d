"""Whole models: the networks known here, and the conversion of any."""
