"""conv2attn: any convolution as an equal multi-head self-attention layer, with a certificate."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import proofs as proofs
    from conv2attn.attention import MultiHeadSelfAttention, from_gpsa, from_mha, set_engine, to_gpsa, to_mha
    from conv2attn.checkpoints import load, save
    from conv2attn.equality import certify
    from conv2attn.framework import AttentionConvolution, BasisConvolution, compare, from_torch
    from conv2attn.models import conversion_of, convert, soften, softened
    from conv2attn.models.capture import capture
    from conv2attn.models.starts import start_at_convolution
    from conv2attn.span import check_span, express, heads, recover
    from conv2attn.testing import assert_equivalent
    from conv2attn.theorem import as_basis, to_torch

__version__ = "0.3.0.dev0"
HOMES = {
    "AttentionConvolution": "framework",
    "BasisConvolution": "framework",
    "MultiHeadSelfAttention": "attention",
    "as_basis": "theorem",
    "assert_equivalent": "testing.equivalence",
    "capture": "models.capture",
    "certify": "equality",
    "check_span": "span",
    "compare": "framework",
    "conversion_of": "models",
    "convert": "models",
    "express": "span",
    "from_gpsa": "attention",
    "from_mha": "attention",
    "from_torch": "framework",
    "heads": "span",
    "load": "checkpoints",
    "recover": "span",
    "save": "checkpoints",
    "set_engine": "attention",
    "soften": "models",
    "softened": "models",
    "start_at_convolution": "models.starts",
    "to_gpsa": "attention",
    "to_mha": "attention",
    "to_torch": "theorem",
}
SUBMODULES = ("basis", "bounds", "callbacks", "errors", "examples", "explore", "framework", "testing", "verdicts")
__all__ = [
    "AttentionConvolution",
    "BasisConvolution",
    "MultiHeadSelfAttention",
    "as_basis",
    "assert_equivalent",
    "capture",
    "certify",
    "check_span",
    "compare",
    "conversion_of",
    "convert",
    "express",
    "from_gpsa",
    "from_mha",
    "from_torch",
    "heads",
    "load",
    "recover",
    "save",
    "set_engine",
    "soften",
    "softened",
    "start_at_convolution",
    "to_gpsa",
    "to_mha",
    "to_torch",
]


def __getattr__(name: str) -> Any:
    """Public names, resolved on first use, so that importing the package does not import torch (PEP 562).

    `proofs` is a part of the installed package; in a checkout it stands beside it, at the top of the repository.
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
