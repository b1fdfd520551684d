"""A convolution as data: taps at integer offsets, queries at strided sites, padding, and a bias."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import singledispatch
from itertools import product
from typing import final, get_args

import torch
from torch import Tensor, nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.utils.parametrize import is_parametrized

from conv2attn.errors import UnsupportedError, UsageError
from conv2attn.theory.basis import Basis, Offset, Padding, Shift, Sites, Weights, as_basis, kernel_taps, turned
from conv2attn.torch_internals import TRACED

Stock = nn.Conv1d | nn.Conv2d | nn.Conv3d | nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d
STOCK = get_args(Stock)
DESCRIBING = ("weight", "bias", "stride", "padding", "dilation", "groups", "padding_mode", "output_padding")
"""The attributes by which a convolution is read."""
CONVOLUTION_DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)


@final
@dataclass(frozen=True, eq=False)
class Convolution:
    """A cross-correlation: `weight` (d_out, d_in / groups, *kernel_size) over the padded image, as PyTorch computes it.

    A transposed convolution is a convolution of the zero-stuffed image with flipped taps.
    """

    weight: Tensor
    bias: Tensor | None
    stride: Offset
    dilation: Offset
    padding: Padding
    groups: int = 1

    @property
    def d_in(self) -> int:
        """Number of input channels."""
        return self.weight.shape[1] * self.groups

    @property
    def d_out(self) -> int:
        """Number of output channels."""
        return self.weight.shape[0]

    @property
    def kernel_size(self) -> Offset:
        """Number of taps along each axis."""
        return tuple(self.weight.shape[2:])

    @property
    def sites(self) -> Sites:
        """The sites of the queries on the padded grid."""
        return Sites.of_kernel(self.kernel_size, self.stride, self.dilation)

    @property
    def offsets(self) -> tuple[Offset, ...]:
        """`dilation * (t - floor((K - 1) / 2))` for each tap t, row-major: Eq. (5) for odd kernels (see E6)."""
        axes = [
            [d * (t - (k - 1) // 2) for t in range(k)] for k, d in zip(self.kernel_size, self.dilation, strict=True)
        ]
        return tuple(product(*axes))

    def taps(self) -> Tensor:
        """The channel matrix of each tap, (taps, d_out, d_in / groups): a view of the weight."""
        return kernel_taps(self.weight)

    def describe(self, kind: str) -> str:
        """The convolution in one line that begins with `kind`: `Conv2d 3->64 k7 s2`."""
        stride = self.padding.spacing if max(self.padding.spacing) > 1 else self.stride
        parts = [f"{kind} {self.d_in}->{self.d_out}", f"k{short_numbers(self.kernel_size)}"]
        parts += [f"s{short_numbers(stride)}"] if max(stride) > 1 else []
        parts += [f"d{short_numbers(self.dilation)}"] if max(self.dilation) > 1 else []
        return " ".join([*parts, f"g{self.groups}"] if self.groups > 1 else parts)


def short_numbers(numbers: Sequence[int]) -> str:
    """Equal numbers as one, others joined by x: 3, 1x7."""
    return str(numbers[0]) if len(set(numbers)) == 1 else "x".join(map(str, numbers))


@as_basis.register
def _(layer: Convolution) -> Basis:
    weights = Weights(None, layer.taps(), layer.bias, layer.groups)
    return Basis(Shift(layer.offsets), weights, layer.padding, layer.sites)


@as_basis.register
def _(layer: Stock) -> Basis:
    return as_basis(read_convolution(layer))


@as_basis.register
def _(pair: nn.Sequential) -> Basis:
    """A convolution followed by a pointwise one, such as a depthwise separable pair, is one convolution."""
    last = read_convolution(pair[1]) if len(pair) == 2 else None
    if last is None or max(last.kernel_size + last.stride) > 1 or not last.padding.is_identity:
        raise UnsupportedError(
            "C2A101",
            "only a convolution followed by a 1x1 convolution is read as one basis",
            "Convert the layers one by one.",
        )
    first, matrix = as_basis(pair[0]), Weights(None, last.taps(), None, last.groups).dense()[0]
    bias = last.bias
    if first.weights.bias is not None:
        # The second layer also maps the bias of the first.
        bias = matrix @ first.weights.bias + (0 if bias is None else bias)
    value = first.weights.dense()
    return replace(first, weights=Weights(value, matrix.expand(len(value), -1, -1), bias))


@as_basis.register
def _(pool: nn.AvgPool1d | nn.AvgPool2d | nn.AvgPool3d, channels: int = 1) -> Basis:
    """Average pooling of `channels` channels: a depthwise convolution whose taps are all 1 / window."""
    axes = int(type(pool).__name__[-2])
    kernel_size, stride, padding = (per_axis(each, axes) for each in (pool.kernel_size, pool.stride, pool.padding))
    if pool.ceil_mode or (max(padding) > 0 and not pool.count_include_pad):
        raise UnsupportedError(
            "C2A101",
            f"{type(pool).__name__} divides by other numbers at the border, so it is not a convolution",
            "Build it without ceil_mode, and with count_include_pad=True or without padding.",
        )
    window = getattr(pool, "divisor_override", None) or math.prod(kernel_size)
    weight = torch.full((channels, 1, *kernel_size), 1 / window)
    amounts = Padding(padding, padding, "zeros")
    return as_basis(Convolution(weight, None, stride, (1,) * axes, amounts, channels))


def has_own_forward(module: nn.Module) -> bool:
    """Whether a subclass or an instance replaced the forward, or an attribute that describes a convolution."""
    base = next(kind for kind in STOCK if isinstance(module, kind))
    names = ("forward", "_conv_forward", "_output_padding", "__call__", "_wrapped_call_impl", "_call_impl")
    by_class = (*names, "__getattr__", "__getattribute__")
    replaced = any(getattr(type(module), name, None) is not getattr(base, name, None) for name in by_class)
    # A property of the class hides the parameter of the same name, but the attention would keep the parameter.
    # Properties that torch's parametrisations make are no replacement, since the attention keeps them too.
    computed = any(
        isinstance(getattr(type(module), name, None), property) and not is_parametrized(module, name)
        for name in DESCRIBING
    )
    return replaced or computed or any(name in vars(module) for name in names)


@singledispatch
def read_convolution(module: object) -> Convolution:
    """The convolution that a module computes.

    Raises:
        UnsupportedError: the module is not a convolution (C2A101), is lazy (C2A103), has weights of an unsupported
            dtype (C2A102) or a custom forward (C2A106).
        UsageError: its padding mode is unknown (C2A104).
    """
    kind = f"{type(module).__module__}.{type(module).__qualname__}"
    if "quantized" in kind and "Conv" in kind:
        raise UnsupportedError("C2A102", f"{kind} has quantised weights", "Dequantise the layer first.")
    raise UnsupportedError(
        "C2A101", f"{kind} is not a convolution layer", "Pass a convolution layer of torch.nn, or a whole network."
    )


@read_convolution.register
def _(module: nn.Conv1d | nn.Conv2d | nn.Conv3d) -> Convolution:
    weight, bias = checked_weight(module), module.bias
    kernel_size = tuple(weight.shape[2:])
    stride, dilation = (per_axis(numbers, len(kernel_size)) for numbers in (module.stride, module.dilation))
    amounts = resolve_padding(module.padding, kernel_size, dilation, stride)
    if module.padding_mode != "zeros":  # torch pads by its construction arguments, last axis first
        kept = module._reversed_padding_repeated_twice
        amounts = tuple(kept[-2::-2]), tuple(kept[::-2])
    return Convolution(weight, bias, stride, dilation, Padding(*amounts, module.padding_mode), module.groups)


@read_convolution.register
def _(module: nn.ConvTranspose1d | nn.ConvTranspose2d | nn.ConvTranspose3d) -> Convolution:
    weight = checked_weight(module)
    options = module.stride, module.padding, module.output_padding, module.dilation
    assert not isinstance(module.padding, str)
    stride, padding, extra, dilation = (per_axis(numbers, weight.ndim - 2) for numbers in options)  # type: ignore[arg-type]
    return transposed_convolution(weight, module.bias, stride, padding, extra, module.groups, dilation)


def transposed_convolution(
    weight: Tensor,
    bias: Tensor | None,
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    groups: int,
    dilation: Sequence[int],
) -> Convolution:
    """A transposed convolution as one over the zero-stuffed grid; weight (d_in, d_out / groups, *kernel)."""
    reach = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:], strict=True)]
    # The padding of a transposed convolution crops its output, so less padding is left around the stuffed grid.
    before = tuple(r - p for r, p in zip(reach, padding, strict=True))
    after = tuple(b + extra for b, extra in zip(before, output_padding, strict=True))
    ones = (1,) * len(before)
    amounts = Padding(before, after, "zeros", tuple(stride))
    return Convolution(turned(weight, groups), bias, ones, tuple(dilation), amounts, groups)


def per_axis(numbers: int | Sequence[int], axes: int) -> Offset:
    """One number per axis; a single number is repeated for every axis."""
    amounts = (numbers,) if isinstance(numbers, int) else tuple(int(number) for number in numbers)
    return amounts * axes if len(amounts) == 1 else amounts


def resolve_padding(
    padding: int | str | Sequence[int], kernel_size: Sequence[int], dilation: Sequence[int], stride: Sequence[int]
) -> tuple[Offset, Offset]:
    """Amounts before and after each axis; "same" puts an odd pixel after the image, as PyTorch does."""
    if padding == "valid":
        return (0,) * len(kernel_size), (0,) * len(kernel_size)
    if padding == "same":
        if max(stride) > 1:
            raise UsageError(
                "C2A004",
                f"padding='same' has no meaning at stride {tuple(stride)}",
                "Pass padding as numbers, or stride 1.",
            )
        total = [d * (k - 1) for k, d in zip(kernel_size, dilation, strict=True)]
        return tuple(t // 2 for t in total), tuple(t - t // 2 for t in total)
    assert not isinstance(padding, str)
    amounts = per_axis(padding, len(kernel_size))
    return amounts, amounts


def checked_weight(module: nn.Module) -> Tensor:
    """The present weight of `module`.

    Raises:
        UnsupportedError: as `read_convolution`.
    """
    # A lazy layer has no sizes before its first input.
    if isinstance(module, LazyModuleMixin) and module.has_uninitialized_params():
        raise UnsupportedError(
            "C2A103",
            f"{type(module).__name__} has not seen an input yet",
            "Run the model once on an input, or pass example_input.",
        )
    # The attributes of the class would describe another computation than that of the replaced forward.
    if has_own_forward(module):
        raise UnsupportedError(
            "C2A106",
            f"{type(module).__name__} has a forward of its own",
            "Pass example_input, so that the convolution in its forward is found and converted.",
        )
    # torch's remove_parametrizations removes the weight of all copies of a layer, since they share a class.
    weight = getattr(module, "weight", None)
    if not isinstance(weight, Tensor):
        raise UnsupportedError("C2A103", f"{type(module).__name__} has no weight", "Give it its weight first.")
    assert module.bias is None or isinstance(module.bias, Tensor)
    check_plain(type(module).__name__, weight, module.bias)
    if weight.is_quantized or weight.dtype not in CONVOLUTION_DTYPES:
        raise UnsupportedError(
            "C2A102",
            f"{type(module).__name__} has weights of {weight.dtype}",
            "Dequantise or cast the layer to float64, float32, bfloat16 or float16 first.",
        )
    return weight


def check_plain(kind: str, weight: Tensor, bias: Tensor | None) -> None:
    """Raises UnsupportedError (C2A106) for tensors of a class that overrides torch's functions."""
    for kind_of_tensor in {type(weight), type(bias)} - {type(None), Tensor, nn.Parameter}:
        if overrides_torch(kind_of_tensor):
            remedy = "Pass plain parameters, or leave the layer unconverted with --skip."
            raise UnsupportedError("C2A106", f"{kind} computes with tensors of {kind_of_tensor.__name__}", remedy)


def overrides_torch(kind_of_tensor: type) -> bool:
    """Whether tensors of a class override torch's functions; torch's own tracing classes count as plain."""
    names = ("__torch_function__", "__torch_dispatch__")
    defaults = (None, nn.Parameter.__torch_function__, Tensor.__torch_dispatch__)
    kinds = [each for each in kind_of_tensor.__mro__ if each not in (Tensor, nn.Parameter)]
    traced = kind_of_tensor.__module__.startswith(TRACED)
    return not traced and any(vars(each).get(name) not in defaults for each in kinds for name in names)
