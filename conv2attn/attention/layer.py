"""The paper's multi-head self-attention with relative positions, Eqs. (1) to (8), on grids of one to three axes."""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from conv2attn.attention.call import Call, Weights
from conv2attn.attention.encodings import Encoding
from conv2attn.attention.engines import check_engine, choose_engine, dense, evaluate, explain_engines
from conv2attn.basis import Padding, Sides, Sites
from conv2attn.errors import GeometryError, HeadSizeError, UsageError

MEMORY_LIMIT = 512 * 2**20


class MultiHeadSelfAttention(nn.Module):
    """`MHSA(X) = sum_h softmax(A_h) X W_val^h W_out^h + b_out` on images (batch, d_in, *sides).

    `A_h = q.(W_key x_k) + q.(W_hat_key r_delta) + u.(W_key x_k) + v.(W_hat_key r_delta)` with `q = W_qry x_q`
    (Cordonnier et al. 2020, Eqs. 1-8). The last term is the encoding's: v enters it only through `W_hat_key^T v`. The
    other three are there if their weights are. Keys live on the padded image, queries on `sites` of it.

    Args:
        d_in, d_out: channels.
        encoding: relative positions; says the number of heads and axes.
        d_head: width of a head, by default min(d_in, d_out).
        d_key: width of queries and keys where content counts; at least `encoding.d_position`.
        content: whether queries meet keys (W_qry, W_key).
        content_position: whether queries meet positions (W_qry, W_hat_key).
        content_bias: whether keys have a bias of their own (u, W_key).
        value, output: False for the identity, which is then neither stored nor multiplied by.
        bias: whether there is a b_out.
        groups: diagonal blocks of value and output.
        padding, sites: geometry, as of a convolution; by default none, and every pixel asks.
        stride_by: "queries" asks only at the strided sites, "pooling" asks everywhere and then takes every stride-th.
    Raises:
        HeadSizeError: a width does not fit (C2A105).  UsageError: an argument out of range (C2A001).
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        encoding: Encoding,
        *,
        d_head: int | None = None,
        d_key: int | None = None,
        content: bool = False,
        content_position: bool = False,
        content_bias: bool = False,
        value: bool = True,
        output: bool = True,
        bias: bool = True,
        groups: int = 1,
        padding: Padding | None = None,
        sites: Sites | None = None,
        stride_by: str = "queries",
        engine: str = "auto",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ):
        super().__init__()
        if stride_by not in ("queries", "pooling"):
            raise UsageError("C2A001", f"stride_by={stride_by!r} is neither 'queries' nor 'pooling'")
        self.d_in, self.d_out, self.groups, self.stride_by = d_in, d_out, groups, stride_by
        self.d_head = min(d_in, d_out) if d_head is None else d_head
        self.d_key = encoding.d_position if d_key is None else d_key
        check_widths(self, encoding.d_position, value, output)
        self.encoding, self.dimensions, self.heads = encoding, encoding.dimensions, encoding.heads
        self.padding, self.sites = padding or Padding.none(self.dimensions), sites or Sites.everywhere(self.dimensions)
        self.engine, self.memory_limit, self.name = check_engine(engine), MEMORY_LIMIT, "attention"

        def weight(*shape: int, fan_in: int = 1) -> nn.Parameter:
            drawn = torch.empty(shape, device=device, dtype=dtype)
            return nn.Parameter(nn.init.uniform_(drawn, -(fan_in**-0.5), fan_in**-0.5) if drawn.numel() else drawn)

        h, g = self.heads, groups
        self.query = weight(h, self.d_key, d_in, fan_in=d_in) if content or content_position else None
        self.key = weight(h, self.d_key, d_in, fan_in=d_in) if content or content_bias else None
        self.position_key = weight(h, self.d_key, encoding.d_position, fan_in=self.d_key) if content_position else None
        self.content_bias = weight(h, self.d_key, fan_in=self.d_key) if content_bias else None
        self.value = weight(h, self.d_head, d_in // g, fan_in=d_in // g) if value else None
        self.output = weight(h, d_out, self.d_head // g, fan_in=h * self.d_head // g) if output else None
        self.bias = nn.Parameter(torch.zeros(d_out, device=device, dtype=dtype)) if bias else None

    @property
    def has_content(self) -> bool:
        """Whether the attention depends on the image."""
        return self.key is not None or self.position_key is not None

    def forward(
        self, input: Tensor, output_size: Sequence[int] | None = None, weights: Weights | None = None
    ) -> Tensor:
        """The layer's output, (batch, d_out, *queries), or (d_out, *queries) for an image without a batch.

        Args:
            input: the image, (batch, d_in, *sides), or (d_in, *sides); named as that of torch.nn.Conv2d.
            output_size: of a layer made from a transposed convolution, the sides wanted; its stride leaves a choice.
            weights: to be used instead of the layer's own.
        Raises:
            UsageError: axes or channels do not fit (C2A120).  GeometryError: the grid is too small (C2A121).
            EngineError: the engine set is not exact for the present parameters (C2A201).
        """
        batched = input if input.ndim == self.dimensions + 2 else input.unsqueeze(0)
        call = self.call(batched, output_size, weights)
        if torch.is_autocast_enabled(input.device.type):
            with torch.autocast(input.device.type, enabled=False):
                result = evaluate(self.engine, call)
        else:
            result = evaluate(self.engine, call)
        if self.stride_by == "pooling":
            every: tuple[Any, ...] = (Ellipsis, *[slice(None, None, s) for s in self.sites.stride])
            result = result[every].contiguous()
        if is_channels_last(batched):
            result = result.contiguous(memory_format=torch.channels_last)
        return result if input.ndim == batched.ndim else result.squeeze(0)

    def call(self, image: Tensor, output_size: Sequence[int] | None = None, weights: Weights | None = None) -> Call:
        """What an engine is given for `image` (batch, d_in, *sides): under autocast all in the autocast dtype."""
        if image.ndim != self.dimensions + 2 or image.shape[1] != self.d_in:
            raise UsageError(
                "C2A120",
                f"{self.name}: an image {tuple(image.shape)} is not (batch, {self.d_in}, {self.dimensions} sides)",
            )
        weights = weights or Weights(self.value, self.output, self.bias, self.groups)
        if torch.is_autocast_enabled(image.device.type) and image.dtype != torch.float64:
            dtype = torch.get_autocast_dtype(image.device.type)
            image, weights = image.to(dtype), weights.to(dtype)
        padding = self.padding if output_size is None else padding_for(self, tuple(image.shape[2:]), output_size)
        sites = self.sites if self.stride_by == "queries" else self.sites.without_stride()
        sites.count(padding.sides(tuple(image.shape[2:])))
        return Call(self, image, padding, sites, weights)

    def attention(self, image: Tensor | None = None, *, sides: Sides | None = None) -> Tensor:
        """The attention probabilities, (batch, heads, queries, keys); batch is 1 if they do not depend on the image.

        Args:
            image: (batch, d_in, *sides), or (d_in, *sides).
            sides: instead of an image, the sides of one, where attention depends on positions alone.
        Raises:
            UsageError: neither, or both, or only sides of a layer that reads content (C2A001).
        """
        return torch.cat([piece for _, piece in self.attention_chunks(image, sides=sides)], 2)

    def attention_chunks(
        self, image: Tensor | None = None, *, sides: Sides | None = None
    ) -> Iterator[tuple[slice, Tensor]]:
        """The same in chunks of queries under `memory_limit`: (which queries, (batch or 1, heads, queries, keys))."""
        if (image is None) == (sides is None) or (image is None and self.has_content):
            raise UsageError("C2A001", f"{self.name}: pass an image, or sides where attention is position-only")
        if image is None:
            assert sides is not None
            like = self.bias if self.bias is not None else self.output if self.output is not None else self.value
            image = next(self.encoding.parameters()).new_zeros(
                1, self.d_in, *sides, dtype=None if like is None else like.dtype
            )
        yield from dense.attention_chunks(self.call(image if image.ndim == self.dimensions + 2 else image.unsqueeze(0)))

    def which_engine(self, image: Tensor) -> str:
        """The engine that `auto` takes for `image`."""
        return choose_engine(self.call(image))

    def why_engine(self, image: Tensor) -> dict[str, str]:
        """For each engine, cheapest first: "exact", or why it is not for `image` and the present parameters."""
        return explain_engines(self.call(image))

    def extra_repr(self) -> str:
        """Channels, heads and whatever is not the default."""
        parts = [f"{self.d_in}, {self.d_out}, heads={self.heads}, d_head={self.d_head}"]
        if not self.padding.is_identity:
            parts.append(f"padding={self.padding.before}..{self.padding.after} {self.padding.mode}")
        if max(self.sites.stride) > 1:
            parts.append(f"stride={self.sites.stride} by {self.stride_by}")
        if self.groups > 1:
            parts.append(f"groups={self.groups}")
        parts += [f"{name}=identity" for name in ("value", "output") if getattr(self, name) is None]
        return ", ".join([*parts, f"bias={self.bias is not None}", f"engine={self.engine}"])


def check_widths(layer: MultiHeadSelfAttention, d_position: int, value: bool, output: bool) -> None:
    """Raises HeadSizeError (C2A105) where the widths of `layer` do not fit together."""
    for what, width in (("d_in", layer.d_in), ("d_out", layer.d_out), ("d_head", layer.d_head)):
        if width < 1 or width % layer.groups:
            raise HeadSizeError("C2A105", f"{what}={width} is not a positive multiple of groups={layer.groups}")
    if layer.d_key < d_position:
        raise HeadSizeError("C2A105", f"d_key={layer.d_key} is less than d_position={d_position}", "Raise d_key.")
    if not value and layer.d_head != layer.d_in:
        raise HeadSizeError("C2A105", f"value is the identity, so d_head={layer.d_head} must be d_in={layer.d_in}")
    if not output and layer.d_head != layer.d_out:
        raise HeadSizeError("C2A105", f"output is the identity, so d_head={layer.d_head} must be d_out={layer.d_out}")
    if not value and not output:
        raise HeadSizeError("C2A105", "value and output are both the identity: nothing would tell the heads apart")


def padding_for(layer: MultiHeadSelfAttention, sides: Sides, output_size: Sequence[int]) -> Padding:
    """The padding with which a transposed convolution's attention gives `output_size`; one stride leaves the choice."""
    padding = layer.padding
    if len(output_size) not in (len(sides), len(sides) + 2):
        raise GeometryError(
            "C2A121", f"{layer.name}: output_size {tuple(output_size)} does not have {len(sides)} sides"
        )
    offered = [b - a for b, a in zip(padding.before, padding.after, strict=True)]
    smallest = layer.sites.count(padding.extended(offered).sides(sides))
    extra = [want - least for want, least in zip(output_size[-len(sides) :], smallest, strict=True)]
    if not all(0 <= e < s for e, s in zip(extra, padding.spacing, strict=True)):
        largest = tuple(n + s - 1 for n, s in zip(smallest, padding.spacing, strict=True))
        raise GeometryError(
            "C2A121", f"{layer.name}: output_size {tuple(output_size)} is not between {smallest} and {largest}"
        )
    return padding.extended([o + e for o, e in zip(offered, extra, strict=True)])


def is_channels_last(image: Tensor) -> bool:
    """Whether a batch of images is stored with its channels innermost, and not also the usual way."""
    return image.ndim == 4 and not image.is_contiguous() and image.is_contiguous(memory_format=torch.channels_last)
