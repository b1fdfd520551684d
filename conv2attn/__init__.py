"""conv2attn: any convolution as an equal multi-head self-attention layer, with a certificate."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from conv2attn.attention import MultiHeadSelfAttention, set_engine, to_mha
    from conv2attn.checkpoints import load, save
    from conv2attn.equivalence import certify
    from conv2attn.models import conversion_of, convert, soften
    from conv2attn.span import check_span, express, heads, recover

__version__ = "0.1.0"
HOMES = {
    "MultiHeadSelfAttention": "attention",
    "certify": "equivalence",
    "check_span": "span",
    "conversion_of": "models",
    "convert": "models",
    "express": "span",
    "heads": "span",
    "load": "checkpoints",
    "recover": "span",
    "save": "checkpoints",
    "set_engine": "attention",
    "soften": "models",
    "to_mha": "attention",
}
__all__ = [
    "MultiHeadSelfAttention",
    "certify",
    "check_span",
    "conversion_of",
    "convert",
    "express",
    "heads",
    "load",
    "recover",
    "save",
    "set_engine",
    "soften",
    "to_mha",
]


def __getattr__(name: str) -> Any:
    """Public names, resolved on first use, so that importing the package does not import torch (PEP 562)."""
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
