"""conv2attn: any convolution as an equal multi-head self-attention layer, with a certificate."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import proofs as proofs
    from conv2attn.equality.certify import certify
    from conv2attn.files import load, save
    from conv2attn.lab.explore import explore
    from conv2attn.layers.attention import MultiHeadSelfAttention, set_engine, to_mha
    from conv2attn.layers.framework import AttentionConvolution, BasisConvolution, from_torch
    from conv2attn.layers.theorem import as_basis, to_torch
    from conv2attn.networks import conversion_of, convert, soften, softened
    from conv2attn.networks.capture import capture
    from conv2attn.networks.starts import start_at_convolution
    from conv2attn.span import check_span, heads
    from conv2attn.span.distillation import distil
    from conv2attn.span.express import express
    from conv2attn.span.recover import recover
    from conv2attn.testing import assert_equivalent, assert_same

__version__ = "0.3.0.dev0"
HOMES = {
    "AttentionConvolution": "layers.framework",
    "BasisConvolution": "layers.framework",
    "MultiHeadSelfAttention": "layers.attention",
    "as_basis": "layers.theorem",
    "assert_equivalent": "testing",
    "assert_same": "testing",
    "capture": "networks.capture",
    "certify": "equality",
    "check_span": "span",
    "conversion_of": "networks",
    "convert": "networks",
    "distil": "span.distillation",
    "explore": "lab.explore",
    "express": "span",
    "from_torch": "layers.framework",
    "heads": "span",
    "load": "files",
    "recover": "span",
    "save": "files",
    "set_engine": "layers.attention",
    "soften": "networks",
    "softened": "networks",
    "start_at_convolution": "networks.starts",
    "to_mha": "layers.attention",
    "to_torch": "layers.theorem",
}
DISTRICTS = ("theory", "layers", "networks", "equality", "span", "files", "lab")
"""From the bottom up: a district imports only those before it."""
SUBMODULES = (*DISTRICTS, "callbacks", "errors", "examples", "plots", "testing", "verdicts")
__all__ = [
    "AttentionConvolution",
    "BasisConvolution",
    "MultiHeadSelfAttention",
    "as_basis",
    "assert_equivalent",
    "assert_same",
    "capture",
    "certify",
    "check_span",
    "conversion_of",
    "convert",
    "distil",
    "explore",
    "express",
    "from_torch",
    "heads",
    "load",
    "recover",
    "save",
    "set_engine",
    "soften",
    "softened",
    "start_at_convolution",
    "to_mha",
    "to_torch",
]


def __getattr__(name: str) -> Any:
    """Public names, resolved on first use, so that importing the package does not import torch (PEP 562).

    `proofs` is a part of the installed package; in a checkout it is next to it, at the top of the repository.
    """
    if name == "proofs":
        return import_module(f"{__name__}.proofs" if find_spec(f"{__name__}.proofs") else "proofs")
    if name in SUBMODULES:
        return import_module(f"{__name__}.{name}")
    if name not in HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{HOMES[name]}"), name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
