"""Starts: ordinary transformers whose heads begin as soft shifts."""

from conv2attn.networks.starts.parts import Parts
from conv2attn.networks.starts.shifts import Start, StartedHead
from conv2attn.networks.starts.start import start_at_convolution

__all__ = ["Parts", "Start", "StartedHead", "start_at_convolution"]
