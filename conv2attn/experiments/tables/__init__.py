"""Tables 1 and 4 of the paper, counted again."""

from conv2attn.experiments.tables.models import MODELS
from conv2attn.experiments.tables.report import Tables, reproduce_tables

__all__ = ["MODELS", "Tables", "reproduce_tables"]
