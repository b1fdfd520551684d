"""Theorem 1's construction: one quadratic head per tap, centred on the tap's offset and sharp enough to be one-hot."""

import math
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from conv2attn.arguments import check_choice
from conv2attn.choices import EncodingName, StrideBy
from conv2attn.errors import AlphaError, GeometryError, HeadSizeError, whole_number
from conv2attn.layers.attention import MultiHeadSelfAttention
from conv2attn.layers.attention.encoding import Encoding
from conv2attn.layers.attention.hardness import FORMAT_NAMES
from conv2attn.layers.attention.layer import plain_copy
from conv2attn.layers.attention.recipe import score_dtype
from conv2attn.layers.theorem.convolution import Convolution
from conv2attn.theory.basis import FAMILIES, Weights
from conv2attn.theory.bounds import auto_alpha

MOST_KEY_WIDTH = 32  # chosen: wide enough to distinguish tokens
AUTO = {dtype: auto_alpha(name) for dtype, name in FORMAT_NAMES.items()}
SHARE_OF_KEY_WIDTH = 4  # chosen: keys a quarter as wide as the tokens add little to the products of a step


def attention_for(
    convolution: Convolution,
    *,
    alpha: float | Literal["auto"] = "auto",
    encoding: EncodingName = "quadratic",
    d_head: int | None = None,
    stride_by: StrideBy = "queries",
    trainable: bool = False,
    content: str = "none",
) -> MultiHeadSelfAttention:
    """The multi-head self-attention that equals `convolution` on images of every size.

    Its heads are the taps, row-major. It holds the convolution's weight, so that `W_val W_out` of each head is its tap.

    Args:
        alpha: sharpness of all heads, or "auto": a power of two at which attention is one-hot in the weight's dtype.
        encoding: "quadratic" (d_position = axes + 1) or "enumerated" (d_position = 2).
        d_head: width of a head; by default min(d_in, d_out), which is always enough. At another width the layer has
            `value` and `output`, padded with zeros, instead of the weight.
        stride_by: "queries" or "pooling".
        trainable: let gradients reach centres and sharpness: about 7e-4 of the others' at alpha = 5, 1e-5 at 10, 1e-20
            at 46, exactly 0 where attention is one-hot.
        content: "none", or "silent": terms q.k with keys of zero and queries drawn at random, which add exactly 0 to
            every score, and to which gradients flow wherever they flow to the centres.
    Raises:
        AlphaError: alpha is not positive and finite (C2A130).
        HeadSizeError: `d_head` is too small (C2A105).
        UsageError: an unknown encoding (C2A002), or an offset too large for the dtype of the centres (C2A001).
    Source: Cordonnier et al. 2020, Theorem 1, Lemmas 1 and 2; claims L1, L2a and T1 of proofs/.
    """
    weight, bias = convolution.weight, convolution.bias
    settings: Any = {"alpha": alpha, "encoding": encoding, "stride_by": stride_by}
    settings |= {"trainable": trainable, "content": content}
    width = head_width(convolution, d_head)
    if width == head_width(convolution, None):
        layer = heads_for(convolution, kernel_size=convolution.kernel_size, **settings)
        layer.weight = nn.Parameter(plain_copy(weight))
        layer.bias = None if bias is None else nn.Parameter(plain_copy(bias))
        return layer.prepare()
    value, output = factors(convolution.taps().detach(), convolution.groups, width)
    weights = Weights(value, output, bias, convolution.groups)
    factors_present: Any = {"value": value is not None, "output": output is not None}
    layer = heads_for(convolution, d_head=weights.d_head, **factors_present, **settings)
    return layer.hold(weights).prepare()


def heads_for(
    convolution: Convolution,
    *,
    alpha: float | str,
    encoding: str,
    stride_by: StrideBy,
    trainable: bool,
    content: str,
    **factors_present: Any,
) -> MultiHeadSelfAttention:
    """The attention with a head at each tap of `convolution`, with its geometry; weights are on the meta device.

    Args:
        factors_present: which weights the layer has: arguments of `MultiHeadSelfAttention`.
    Raises:
        AlphaError, UsageError: as `attention_for`.
    """
    check_choice(content, "content", ("none", "silent"))
    check_choice(encoding, "encoding", (name for name, family in FAMILIES.items() if family.sharpens))
    weight = convolution.weight
    targets = torch.tensor(convolution.offsets, device="cpu")
    centers = targets.to(score_dtype(weight.dtype))
    # A centre that rounds to another number would lie between pixels, or on another pixel.
    if not torch.equal(centers.to(targets.dtype), targets):
        raise GeometryError(
            "C2A001",
            f"an offset of {targets.abs().max()} pixels is not exact in {centers.dtype}",
            "Convert in float64: model.double().",
        )
    layer = MultiHeadSelfAttention(
        convolution.d_in,
        convolution.d_out,
        Encoding.of(encoding, centers, sharpness_for(alpha, weight.dtype)).learn(trainable).to(weight.device),
        bias=convolution.bias is not None,
        groups=convolution.groups,
        padding=convolution.padding,
        sites=convolution.sites,
        stride_by=stride_by,
        terms="qk+vr" if content == "silent" else "vr",
        d_key=min(-(-convolution.d_in // SHARE_OF_KEY_WIDTH), MOST_KEY_WIDTH) if content == "silent" else None,
        device="meta",
        **factors_present,
    )
    if layer.query is not None and layer.key is not None:
        drawn = torch.empty_like(layer.query, dtype=weight.dtype, device=weight.device)
        layer.query = nn.Parameter(nn.init.normal_(drawn, std=(convolution.d_in * layer.d_key) ** -0.5))
        # Keys of zero make the term exactly 0. With queries of zero as well, neither would have a gradient.
        layer.key = nn.Parameter(torch.zeros_like(drawn))
    return layer


def sharpness_for(alpha: float | str, dtype: torch.dtype) -> float:
    """`alpha` checked, or the power of two that is one-hot in `dtype`.

    Raises:
        AlphaError: `alpha`, or its stored value, is not positive and finite (C2A130).
    """
    if isinstance(alpha, str) and alpha == "auto":
        return AUTO[dtype]
    dtype_of_centres = score_dtype(dtype)
    try:
        sharpness = math.nan if isinstance(alpha, str) else float(alpha)
    except (TypeError, OverflowError):
        sharpness = math.nan
    if not 0 < torch.tensor(sharpness, dtype=dtype_of_centres, device="cpu").item() < math.inf:
        raise AlphaError(
            "C2A130",
            f"alpha={alpha!r} is not a positive finite number in {dtype_of_centres}",
            'Pass a positive number, or "auto".',
        )
    return sharpness


def head_width(convolution: Convolution, d_head: int | None) -> int:
    """Width of a head within a group.

    Raises:
        HeadSizeError: `d_head` is too small for this convolution; the message names the channels that it could express
            (C2A105).
    """
    groups = convolution.groups
    needed = min(convolution.d_in, convolution.d_out) // groups
    if d_head is None:
        return needed
    d_head = whole_number(d_head, "d_head")
    width = d_head // groups
    if d_head % groups or width < 1:
        raise HeadSizeError(
            "C2A105",
            f"d_head={d_head} is not a positive multiple of groups={groups}",
            "Leave d_head unset, or pass a multiple of groups.",
        )
    if width < needed:
        channels = f"any {d_head} of the {convolution.d_out} output channels (0 to {d_head - 1}, say)"
        if groups > 1:
            channels = (
                f"any {width} of the {convolution.d_out // groups} output channels of each of the {groups} groups"
            )
        raise HeadSizeError(
            "C2A105",
            f"d_head={d_head} is less than min(d_in, d_out)={needed * groups}: it could express {channels}",
            "Leave d_head unset, or raise it.",
        )
    return width


def factors(taps: Tensor, groups: int, width: int) -> tuple[Tensor | None, Tensor | None]:
    """`value` and `output` whose products are the taps exactly: one holds the taps, the other an identity.

    An identity is None unless it is wider than its channels, and then padded with zeros.
    """
    heads, d_out, d_in = len(taps), taps.shape[1] // groups, taps.shape[2]
    eye = partial(torch.eye, dtype=taps.dtype, device=taps.device)
    if width == d_in:
        return None, taps
    if width == d_out:
        return taps, None
    if width > d_in:
        return eye(width, d_in).repeat(heads, groups, 1), nn.functional.pad(taps, (0, width - d_in))
    # Padding is within each group: the head's channels are divided among the groups.
    rows = nn.functional.pad(taps.unflatten(1, (groups, d_out)), (0, 0, 0, width - d_out)).flatten(1, 2)
    return rows, eye(d_out, width).repeat(heads, groups, 1)
