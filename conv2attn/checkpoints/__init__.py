"""Files: read without executing anything, recognised by their contents, written whole or not at all."""

from conv2attn.checkpoints.loading import load
from conv2attn.checkpoints.saving import save

__all__ = ["load", "save"]
