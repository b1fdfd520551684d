"""The storage of a convolution's output, which every engine reproduces: memory format, fresh memory, no view."""

import torch
from torch import Tensor

from conv2attn.theory.basis import Basis
from conv2attn.torch_internals import is_batchedtensor, unsafe_view

CHANNELS_LAST = {4: torch.channels_last, 5: torch.channels_last_3d}


def output_format(basis: Basis, image: Tensor) -> torch.memory_format:
    """The memory format of the convolution's output: channels last if its padded image or its weight is.

    Circular padding, as of torch 2.13, stores every image row-major. (Its 3d convolutions return some images row-major
    for which this function says channels last; `conv` returns them as they do.)
    """
    last = (basis.padding.mode != "circular" and channels_are_last(image)) or channels_are_last(basis.weights.like)
    return CHANNELS_LAST[image.ndim] if last else torch.contiguous_format


def channels_are_last(tensor: Tensor) -> bool:
    """Whether a convolution treats `tensor` as channels-last: ATen's `suggest_memory_format`."""
    if tensor.ndim not in CHANNELS_LAST or is_batchedtensor(tensor):
        return False
    if torch.compiler.is_compiling():
        return not tensor.is_contiguous() and tensor.is_contiguous(memory_format=CHANNELS_LAST[tensor.ndim])
    # ATen's own rule, stride by stride: `is_contiguous` decides axes of length one in another way.
    sizes, strides, least = tensor.shape, tensor.stride(), 0
    if strides[1] == 0 or 0 in sizes:
        return False
    for axis in (1, *range(tensor.ndim - 1, 1, -1), 0):
        if strides[axis] < least or (axis == 0 and least == strides[1]):
            return False
        least = strides[axis] * sizes[axis]
    return True


def stored(result: Tensor, form: torch.memory_format) -> Tensor:
    """`result` in this memory format, not as a view of another tensor; copied only if needed."""
    if torch.compiler.is_compiling() or is_batchedtensor(result):
        return result.contiguous() if is_batchedtensor(result) else result.contiguous(memory_format=form)
    if result.stride() != strides(result.shape, form):
        return result.clone(memory_format=form)
    # The result of a convolution is not a view: autograd refuses some in-place operations on views.
    return unsafe_view(result, result.shape) if result._is_view() else result


def strides(sizes: torch.Size, form: torch.memory_format) -> tuple[int, ...]:
    """The strides of a new tensor of these sizes in the memory format."""
    axes = range(len(sizes))
    order = [*axes] if form is torch.contiguous_format else [0, *axes[2:], 1]
    step, steps = 1, dict.fromkeys(order, 1)
    for axis in reversed(order):
        steps[axis] = step
        step *= max(sizes[axis], 1)
    return tuple(steps[axis] for axis in axes)
