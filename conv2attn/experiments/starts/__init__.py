"""The experiment on starts: do heads that begin as shifts help an ordinary vision transformer on small data?"""

from conv2attn.experiments.starts.table import COLUMNS, Starts, complete_starts

__all__ = ["COLUMNS", "Starts", "complete_starts"]
