"""Starts: ordinary transformers whose heads begin as soft shifts."""

from conv2attn.models.starts.parts import Parts
from conv2attn.models.starts.report import Start, StartedHead
from conv2attn.models.starts.start import start_at_convolution

__all__ = ["Parts", "Start", "StartedHead", "start_at_convolution"]
