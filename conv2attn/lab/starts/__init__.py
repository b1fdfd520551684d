"""The experiment on starts: do heads that begin as shifts help an ordinary vision transformer on small data?"""

from conv2attn.lab.starts.arms import ARMS, begin, entropies, faster, log_attention
from conv2attn.lab.starts.gains import Gain, corrected_gains, probability
from conv2attn.lab.starts.runs import displacements, network_of
from conv2attn.lab.starts.starts_plan import Task
from conv2attn.lab.starts.table import START_COLUMNS, Starts, complete_starts

__all__ = [
    "ARMS",
    "START_COLUMNS",
    "Gain",
    "Starts",
    "Task",
    "begin",
    "complete_starts",
    "corrected_gains",
    "displacements",
    "entropies",
    "faster",
    "log_attention",
    "network_of",
    "probability",
]
