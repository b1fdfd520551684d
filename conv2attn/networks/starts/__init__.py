"""Starts: ordinary transformers whose heads begin as soft shifts."""

from conv2attn.networks.starts.parts import Parts
from conv2attn.networks.starts.start import start_at_convolution
from conv2attn.networks.starts.start_report import Start, StartedHead

__all__ = ["Parts", "Start", "StartedHead", "start_at_convolution"]
