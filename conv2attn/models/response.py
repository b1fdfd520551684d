"""`W_out W_val` of each head, measured with forced attention: outputs are then linear in the values."""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from conv2attn.models.conversion.replacement import evaluating
from conv2attn.models.recorder import SOFTMAXES, ModuleCall

MOST_DIFFERENCE = 1e-3
"""Largest deviation of a response from the linear map, as a share of its largest entry."""


class ForcedAttention(TorchFunctionMode):
    """While active, every query attends to the key `shift` before it, with one head or all, in place of the softmax."""

    def __init__(self, heads: int, head: int | None = None, shift: int = 0):
        super().__init__()
        mask = torch.ones(heads) if head is None else F.one_hot(torch.tensor(head), heads).float()
        self.head_mask, self.shift, self.used = mask[None, :, None, None], shift, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Computes `func`; attention is replaced by the forced one."""
        result = func(*args, **(kwargs or {}))
        if func is F.scaled_dot_product_attention:
            value = args[2] if len(args) > 2 else (kwargs or {})["value"]
            if value.ndim == 4 and value.shape[:3] == result.shape[:3] and value.shape[1] == self.head_mask.numel():
                self.used += 1
                return self.head_mask.to(value) * value.roll(self.shift, 2)
        elif func in SOFTMAXES and isinstance(result, Tensor) and result.ndim == 4:
            heads, queries, keys = result.shape[1:]
            if heads == self.head_mask.numel() and queries == keys:
                self.used += 1
                return self.head_mask.to(result) * torch.eye(keys).to(result).roll(self.shift, 0)
        return result


def matrices_by_response(
    network: nn.Module, name: str, call: ModuleCall, heads: int
) -> tuple[Tensor, Tensor | None] | None:
    """`W_out W_val` of each head, (heads, d_out, d_in) in float64, and the layer's bias, from what a module answers.

    Each head in turn is made to attend from each token to itself, and unit vectors are passed. None where the module
    takes anything but one sequence of tokens, attends not once, or is not linear in its values, which is tried on
    random tokens with all heads attending to the token before. `call` is the call that the module had in a run of the
    network.
    """
    module: Any = network.get_submodule(name.split("#")[0]) if name not in ("", "(root)") else network
    with evaluating(module):
        return response_matrices(module, call, heads)


def response_matrices(module: nn.Module, call: ModuleCall, heads: int) -> tuple[Tensor, Tensor | None] | None:
    """The matrices and the bias of a module in evaluation mode, or None."""
    args, kwargs = call
    tokens = [each for each in (*args, *kwargs.values()) if isinstance(each, Tensor)]
    if len(tokens) != 1 or not args or args[0] is not tokens[0] or tokens[0].ndim != 3:
        return None
    count, width = tokens[0].shape[1:]

    @torch.no_grad()
    def answer(inputs: Tensor, head: int | None = None, shift: int = 0) -> Tensor | None:
        with ForcedAttention(heads, head, shift) as chosen:
            output = module(inputs[None].to(tokens[0]), *args[1:], **kwargs)
        output = output[0] if isinstance(output, tuple) else output
        fits = chosen.used == 1 and isinstance(output, Tensor) and output.shape[:2] == (1, count)
        return output[0].cpu().double() if fits else None

    def matrix(head: int) -> Tensor | None:
        bias, columns = answer(torch.zeros(count, width), head), []
        for start in range(0, width, count):
            units = torch.eye(width)[start : start + count]
            columns_at = answer(F.pad(units, (0, 0, 0, count - len(units))), head)
            if bias is None or columns_at is None:
                return None
            columns.append((columns_at - bias)[: len(units)])
        return torch.cat(columns).T

    matrices = [columns for head in range(heads) if (columns := matrix(head)) is not None]
    noise = torch.randn(count, width, generator=torch.Generator().manual_seed(0))
    bias, shifted = answer(torch.zeros(count, width)), answer(noise, shift=1)
    if len(matrices) < heads or bias is None or shifted is None:
        return None
    expected = noise.double().roll(1, 0) @ torch.stack(matrices).sum(0).T + bias[0]
    linear = (shifted - expected).abs().max() <= MOST_DIFFERENCE * shifted.abs().max()
    return (torch.stack(matrices), bias[0]) if linear else None
