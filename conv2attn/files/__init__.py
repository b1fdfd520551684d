"""Files: read without executing anything, recognised by their contents, written whole or not at all."""

from conv2attn.files.loading import load
from conv2attn.files.saving import save

__all__ = ["load", "save"]
