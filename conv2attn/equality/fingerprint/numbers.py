"""Reading and writing the numbers of field tensors: as residues of a dtype, as real numbers, through views."""

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from conv2attn.equality.fingerprint.field import Field
from conv2attn.equality.fingerprint.formulas import oracle
from conv2attn.equality.fingerprint.residues import UNUSABLE, Residues, knowledge
from conv2attn.equality.fingerprint.ring import Undecided
from conv2attn.equality.fingerprint.tensors import FieldTensor, Store

MASKED = 1e30
"""A summand below minus this masks a score; scores themselves are far smaller."""


class Numbers:
    """The numbers that the tensors of one run represent.

    Args:
        base: the narrowest float dtype whose arithmetic counts as exact.
    """

    def __init__(self, run: Any, field: Field, base: torch.dtype):
        self.run, self.field, self.base = run, field, base

    def depends(self, value: Any) -> bool:
        """Whether numbers depend on the input."""
        return isinstance(value, FieldTensor) and value.field_store.residues is not None

    def real(self, value: Any) -> Any:
        """The real numbers of a constant; a value that is not a field tensor unchanged.

        Raises:
            Undecided: they depend on the input.
        """
        if not isinstance(value, FieldTensor):
            return value
        if value.field_store.real is None:
            raise Undecided("a constant is needed, and these numbers depend on the input")
        return value.field_store.real.as_strided(*value.field_view)

    def residues(self, tensor: FieldTensor) -> Residues:
        """The residues in a view of a store that depends on the input."""
        size, stride, offset = tensor.field_view
        stored = tensor.field_store.residues
        assert stored is not None
        values = stored.values.as_strided((self.field.count, *size), (stored.values.shape[1], *stride), offset)
        mark = None if stored.mark is None else stored.mark.as_strided(size, stride, offset)
        return stored.but(values=values, mark=mark)

    def operand(self, value: Any, dtype: torch.dtype) -> Residues:
        """An operand as numbers of this dtype, rounded as torch rounds constants.

        Raises:
            Undecided: the value is neither tensor nor number.
        """
        if self.depends(value):
            return self.cast(self.residues(value), value.dtype, dtype)
        if isinstance(value, Tensor):
            return self.field.encode(self.real(value).to(dtype))
        if isinstance(value, bool | int | float):
            return self.field.encode(torch.tensor(value, dtype=dtype))
        raise Undecided(f"an operand of type {type(value).__name__}")

    def masking(self, value: Any) -> Any:
        """A constant whose numbers below -1e30 are -inf; any other value unchanged.

        Attention masks use the least float as often as -inf. Beside an unmasked key both give weight 0, for scores of
        at most 1e29 in size. The formula uses -inf, which a softmax accepts and every other operator refuses, so no
        other use of such a number is affected.
        """
        if self.depends(value) or isinstance(value, bool | int) or value is None:
            return value
        numbers = self.real(value) if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
        if not numbers.is_floating_point() or numbers.dtype.itemsize < 4 or not numbers.numel():
            return value
        low = numbers < -MASKED
        if not bool((low & numbers.isfinite()).any()):
            return value
        self.field.masked = True
        masked = numbers.masked_fill(low, -math.inf)
        return masked if isinstance(value, Tensor) else masked.item()

    def wide(self, dtype: torch.dtype) -> bool:
        """Whether arithmetic of this dtype counts as exact."""
        if not dtype.is_floating_point:
            return False
        ours, base = torch.finfo(dtype), torch.finfo(self.base)
        return ours.eps <= base.eps and ours.max >= base.max

    def cast(self, numbers: Residues, source: torch.dtype, target: torch.dtype) -> Residues:
        """Numbers cast to another dtype: unchanged if no digits are lost, otherwise an oracle of number and dtypes.

        Raises:
            Undecided: a dtype is complex.
        """
        if source == target:
            return numbers
        if target.is_complex or source.is_complex:
            raise Undecided("complex numbers")
        if holds_all(source, target):
            return numbers
        whole = not source.is_floating_point
        finite = not target.is_floating_point or (whole and torch.finfo(target).max > 1e30)
        return oracle(self.field, f"cast to {target} from {source}", numbers, finite=finite)

    def fresh(self, like: Tensor, numbers: Residues | None) -> FieldTensor:
        """A new tensor laid out as `like` with these numbers; None marks numbers that must not be used.

        Raises:
            Undecided: the layout has gaps.
        """
        size, stride = tuple(like.size()), tuple(like.stride())
        count = 0
        if like.numel():
            count = 1 + sum((side - 1) * step for side, step in zip(size, stride, strict=True))
        primes = self.field.count
        if numbers is None:
            nothing = torch.zeros(primes, *size, dtype=torch.int32)
            numbers = Residues(nothing, torch.full(size, UNUSABLE, dtype=torch.int8))
        if count != like.numel():
            raise Undecided("a result with gaps")

        def stored(each: Tensor, *first: int) -> Tensor:
            each = each.expand(*first, *size)
            if like.is_contiguous():
                return each.reshape(*first, count)
            flat = torch.empty(*first, count, dtype=each.dtype)
            flat.as_strided(each.shape, (*[count for _ in first], *stride)).copy_(each)
            return flat

        numbers = numbers.with_axes(len(size))
        mark = None if numbers.mark is None else stored(numbers.mark)
        store = Store(like.dtype, residues=numbers.but(values=stored(numbers.values, primes), mark=mark))
        return FieldTensor(self.run, store, size, stride)

    def constant(self, tensor: Tensor) -> FieldTensor:
        """A field tensor that takes over the memory of an unshared tensor.

        Raises:
            Undecided: it is not a plain dense tensor.
        """
        odd = tensor.is_complex() or tensor.is_conj() or tensor.is_neg() or tensor.is_quantized
        if odd or tensor.layout != torch.strided or type(tensor) is not Tensor:
            raise Undecided(f"a constant of dtype {tensor.dtype}, {tensor.layout}, {type(tensor).__name__}")
        storage = tensor.untyped_storage()
        count = storage.nbytes() // tensor.element_size()
        whole = torch.empty(0, dtype=tensor.dtype).set_(storage, 0, (count,), (1,))
        store = Store(tensor.dtype, real=whole)
        return FieldTensor(self.run, store, tensor.size(), tensor.stride(), tensor.storage_offset())

    def write(self, target: FieldTensor, numbers: Residues, dtype: torch.dtype) -> None:
        """Writes numbers of a dtype through a view; other holders of the old residues keep them.

        Raises:
            Undecided: elements of the view overlap.
        """
        size, stride, offset = target.field_view
        store, primes = target.field_store, self.field.count
        count = store.numel()
        numbers = self.cast(numbers, dtype, store.dtype).with_axes(len(size))
        mark = None if numbers.mark is None or not bool(numbers.mark.any()) else numbers.mark.expand(size)
        numbers = numbers.but(values=numbers.values.expand(primes, *size), mark=mark)
        if not offset and math.prod(size) == count and is_dense(size, stride):
            like = torch.empty_strided(size, stride, dtype=store.dtype, device="meta")
            store.residues, store.real = self.fresh(like, numbers).field_store.residues, None
            return
        places = torch.arange(count).as_strided(size, stride, offset)
        if places.unique().numel() != places.numel():
            raise Undecided("a write to numbers that overlap")
        old = store.residues
        if old is None:
            assert store.real is not None
            old = self.field.encode(store.real)
        facts = knowledge(numbers, old)
        # Others, such as cached results, hold the old residues, so a write creates new ones. The source may be a view
        # of the target, so it is copied before anything is written.
        values = old.values.clone(memory_format=torch.contiguous_format)
        values.as_strided((primes, *size), (count, *stride), offset).copy_(numbers.values.clone())
        mark = torch.zeros(count, dtype=torch.int8) if old.mark is None else old.mark.clone()
        mark.as_strided(size, stride, offset).copy_(torch.zeros(()) if numbers.mark is None else numbers.mark.clone())
        store.residues, store.real = Residues(values, mark if bool(mark.any()) else None, **facts), None


def is_dense(size: Sequence[int], stride: Sequence[int]) -> bool:
    """Whether a view covers every element exactly once, without gaps."""
    step = 1
    for along, side in sorted((along, side) for side, along in zip(size, stride, strict=True) if side != 1):
        if along != step:
            return False
        step *= side
    return True


def holds_all(source: torch.dtype, target: torch.dtype) -> bool:
    """Whether the target dtype represents every number of the source dtype."""
    if source.is_floating_point:
        if not target.is_floating_point:
            return False
        ours, theirs = torch.finfo(source), torch.finfo(target)
        return theirs.eps <= ours.eps and theirs.max >= ours.max and theirs.tiny <= ours.tiny
    if source == torch.bool or target == torch.bool:
        return source == torch.bool
    narrow = torch.iinfo(source)
    if target.is_floating_point:
        return 1 / torch.finfo(target).eps > 2**narrow.bits
    wide = torch.iinfo(target)
    return wide.min <= narrow.min and wide.max >= narrow.max


def is_whole(value: float) -> bool:
    """Whether a float is an integer, and not a negative zero."""
    return value.is_integer() and not (value == 0 and math.copysign(1, value) < 0)
