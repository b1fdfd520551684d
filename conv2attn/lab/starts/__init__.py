"""The experiment on starts: do heads that begin as shifts help an ordinary vision transformer on small data?"""

from conv2attn.lab.starts.table import START_COLUMNS, Starts, complete_starts

__all__ = ["START_COLUMNS", "Starts", "complete_starts"]
