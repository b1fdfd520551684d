"""Reads attention from arrays: checks shapes, sums and grids, moves leading tokens last, and finds one-hot rows.

An array may be declared exact. Its entries are then fractions, integer weights that are divided by the sum of their
row, or floats that count as rational numbers.
"""

from collections.abc import Callable
from fractions import Fraction
from numbers import Rational
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from conv2attn.errors import UsageError
from conv2attn.networks.positions import leading_note
from conv2attn.span.attention_rows import ROUNDOFF, ULPS, Array, AttentionRows, Whole
from conv2attn.span.grids import grid_of, noted
from conv2attn.theory.basis import AttentionGrid, Sides
from conv2attn.theory.bounds import gamma
from conv2attn.theory.bounds.dyadic import over_power_of_two

COPIES = 12
"""Float64 numbers in memory per entry of a chunk of attention, with candidate mixings and their residuals. The largest
number that was measured is 9.8.
"""
MEMORY_LIMIT = 512 * 2**20
CHUNK = 2**16
"""The largest chunk of one head, in entries. Larger chunks are not faster."""


NOTES = {
    "f": "declared exact: its floats are taken as rational numbers",
    "O": "declared exact, in fractions",
    "i": "declared exact: its whole numbers are weights, each row divided by its sum",
}


def read_array(
    name: str,
    attention: Any,
    *,
    grid: Sides | AttentionGrid | None,
    dimensions: int,
    extra_tokens: int = 0,
    memory_limit: int,
    sampled: bool | None = None,
    exact: bool = False,
) -> AttentionRows:
    """Checks the rows of an array or tensor (images, heads, queries, keys), whose first axes may be absent.

    Fractions, and arrays that are declared `exact`, are taken without any uncertainty.

    Raises:
        UsageError: the array is not attention, or is declared exact and has rows that do not sum to exactly 1 (C2A502);
            the number of its tokens is not that of the grid (C2A503).
    """
    numbers = as_array(name, attention)
    kind = "i" if numbers.dtype.kind in "biu" else numbers.dtype.kind
    if kind not in NOTES:
        raise UsageError(
            "C2A502",
            f"{name}: its dtype is {numbers.dtype}",
            "Pass floating-point numbers, Fractions or whole numbers.",
        )
    stack, exact, roundoff = stacked(name, numbers), exact or kind == "O", 0.0
    if exact:
        check_exact(name, stack, kind)
        notes, floats = [NOTES[kind]], stack.astype(np.float64)
        # Integer weights become shares of their row. These floats only start a search; decisions read the fractions.
        floats = floats / floats.sum(-1, keepdims=True) if kind == "i" else floats
    else:
        dtype, floats = str(attention.dtype).removeprefix("torch."), stack
        # Attention that was saved in float64 may have been computed in float16, and then has the rounding of float16.
        computed_in = dtype_of(stack, dtype)
        roundoff = ROUNDOFF[computed_in]
        check_rows(name, stack, roundoff)
        narrower = computed_in != dtype and dtype in ROUNDOFF
        notes = [f"its numbers are {computed_in}, and have the uncertainty of that dtype"] if narrower else []
    on = (
        grid
        if isinstance(grid, AttentionGrid)
        else grid_of(name, *pixels_of(name, stack, extra_tokens), grid, dimensions)
    )
    notes += [*leading_note(extra_tokens), *([] if exact or on is grid else noted(on, grid is None))]
    images, heads, _, keys = stack.shape
    # Leading tokens attend too, but a convolution has no output there. So only the rows of pixels are equations.
    pixel_rows = stack[:, :, extra_tokens:]
    blocks = (block for image in pixel_rows for block in image)
    # One head at a time, since a mask of the whole stack would take much memory. A row of integer weights with a single
    # non-zero, such as (0, 3, 0), is one-hot after the division by its sum.
    one_hot = all(
        bool((block != 0).sum(1).max() == 1) and (exact or bool((block.max(1) == 1).all())) for block in blocks
    )
    return AttentionRows(
        name,
        heads,
        images,
        on,
        roundoff,
        0 if one_hot or exact else ULPS,
        reader(floats, extra_tokens),
        rows_at_once(heads, keys, memory_limit),
        by_position=exact and images == 1,
        one_hot=one_hot,
        rational=fractions_of(stack, extra_tokens) if exact else None,
        sampled=varies(stack) if sampled is None else sampled,
        notes=tuple(notes),
        hot=((pixel_rows != 0).argmax(-1) - extra_tokens) % keys if one_hot else None,
        extra=extra_tokens,
    )


def fractions_of(stack: NDArray[Any], leading: int) -> Callable[[int, int], list[Fraction]]:
    """Reads the exact attention of a head at row `image * queries + query`: weights over their sum, pixels first."""

    def row(head: int, place: int) -> list[Fraction]:
        image, query = divmod(place, stack.shape[2] - leading)
        weights = stack[image, head, leading + query].tolist()
        fractions = [Fraction(x) for x in (*weights[leading:], *weights[:leading])]
        total = sum(fractions, Fraction(0))
        return fractions if total == 1 else [x / total for x in fractions]

    return row


def reader(stack: NDArray[Any], leading: int = 0) -> Callable[[int, Whole], Array]:
    """Reads rows of an array (images, heads, queries, keys) in float64: no leading queries, and leading keys last."""

    def read(image: int, queries: Whole) -> Array:
        first = int(queries[0]) + leading
        # A slice is a view of the array, while an index array copies. Queries are sorted, so the first and the last
        # show whether they are consecutive.
        consecutive = len(queries) == queries[-1] - queries[0] + 1
        rows = stack[image, :, first : first + len(queries)] if consecutive else stack[image][:, queries + leading]
        block = np.ascontiguousarray(rows, dtype=np.float64)
        # Pixels come first, so the keys of targets have the same numbers with and without a class token.
        return np.roll(block, -leading, -1) if leading else block

    return read


def varies(stack: NDArray[Any]) -> bool:
    """Whether the images of an array differ."""
    return not all(np.array_equal(image, stack[0]) for image in stack[1:])


def stacked(name: str, array: NDArray[Any]) -> NDArray[Any]:
    """The array as (images, heads, queries, keys). An array of two axes is one head.

    Raises:
        UsageError: the array has another number of axes, or is empty (C2A502).
    """
    if array.ndim not in (2, 3, 4):
        raise UsageError(
            "C2A502",
            f"{name}: its shape is {array.shape}",
            "Pass (heads, queries, keys), or (images, heads, queries, keys).",
        )
    stack = array.reshape((1,) * (4 - array.ndim) + array.shape)
    if 0 in stack.shape:
        raise UsageError(
            "C2A502", f"{name}: it is empty, of shape {array.shape}", "Pass at least one image, head, query and key."
        )
    return stack


def rows_at_once(heads: int, keys: int, memory_limit: int) -> int:
    """Number of queries of a chunk, such that all working copies of it take at most a quarter of the memory limit."""
    return max(1, min(CHUNK // keys, memory_limit // (4 * 8 * COPIES * heads * keys)))


def dtype_of(stack: NDArray[Any], dtype: str) -> str:
    """The dtype that the attention was computed in, which may be narrower than the array's.

    It is the widest dtype whose rounding explains the sums of the rows, and which represents every entry exactly.
    """
    wide = dtype if dtype in ROUNDOFF else "float64"
    away = float(np.abs(stack.sum(-1, dtype=np.float64) - 1).max())
    # Formats are tried from the widest down. The first that explains the sums and holds every entry allows for the
    # rounding that took place; narrower formats would allow for more.
    for format_name, roundoff in ROUNDOFF.items():
        if roundoff < ROUNDOFF[wide] or not away <= row_error(stack.shape[3], roundoff):
            continue
        narrow = getattr(torch, format_name)
        blocks = (torch.from_numpy(head.astype(np.float64)) for image in stack for head in image)
        if format_name == wide or all(torch.equal(block.to(narrow).double(), block) for block in blocks):
            return format_name
    return wide


def row_error(keys: int, roundoff: float) -> float:
    """Bound on the distance of the sum of a row from 1, by rounding in the softmax and in the sum; at most 1/2."""
    # gamma_n = n u / (1 - n u) (Higham 2002, Lemma 3.1) is 1/2 at n u = 1/3, and is not defined from n u = 1 on.
    return gamma(keys + ULPS, roundoff) if (keys + ULPS) * roundoff < 1 / 3 else 0.5


def check_rows(name: str, stack: NDArray[Any], roundoff: float) -> None:
    """Refuses arrays that are not attention. The sum of a row may differ from 1 by rounding.

    Raises:
        UsageError: NaN, negative entries, rows that do not sum to 1, or columns that do instead (C2A502).
    """
    allowed = row_error(stack.shape[3], roundoff)
    for image, attention in enumerate(stack):
        sums = attention.sum(-1, dtype=np.float64)
        if not np.isfinite(sums).all():
            head, query = np.argwhere(~np.isfinite(sums))[0]
            key = int(np.isfinite(attention[head, query]).argmin())
            entry = attention[head, query, key]
            raise UsageError(
                "C2A502",
                f"{name}: image {image}, head {head}, query {query}, key {key} is {entry}",
                "Pass finite numbers: the probabilities after the softmax.",
            )
        if attention.min() < 0:
            head, query, key = np.unravel_index(attention.argmin(), attention.shape)
            least = float(attention[head, query, key])
            raise UsageError(
                "C2A502",
                f"{name}: image {image}, head {head} has {least:g} at ({query}, {key})",
                "Pass the probabilities after the softmax, not the scores before it.",
            )
        away = np.abs(sums - 1)
        if not away.max() <= allowed:
            head, query = np.unravel_index(away.argmax(), away.shape)
            total = sums[head, query]
            # Columns that sum to 1 are the usual sign of keys before queries.
            if np.abs(attention.sum(-2, dtype=np.float64) - 1).max() <= allowed:
                raise UsageError(
                    "C2A502", f"{name}: columns sum to 1 and rows do not", "Transpose it: queries come before keys."
                )
            where = f"image {image}, head {head}, query {query}"
            if total == 0:
                remedy = "Give each query at least one key with weight."
                raise UsageError("C2A502", f"{name}: {where} attends to nothing", remedy)
            miss = f"{away.max():.1e} from 1, of which rounding explains {allowed:.0e}"
            raise UsageError(
                "C2A502",
                f"{name}: {where} sums to {total:.6g}, {miss}",
                "Pass the probabilities after the softmax, queries before keys, heads before both.",
            )


def pixels_of(name: str, stack: NDArray[Any], extra: int) -> tuple[int, int]:
    """Number of queries and number of keys that are pixels.

    Raises:
        UsageError: no query or no key is a pixel (C2A503).
    """
    queries, keys = stack.shape[2:]
    if not 0 <= extra < min(queries, keys):
        raise UsageError(
            "C2A503",
            f"{name}: {extra} extra tokens of {min(queries, keys)} are negative or leave no pixel",
            "Pass fewer --extra-tokens.",
        )
    return queries - extra, keys - extra


def check_exact(name: str, stack: NDArray[Any], kind: str) -> None:
    """Refuses arrays that are not attention in exact arithmetic.

    Raises:
        UsageError: an entry is not a rational number or is negative, or a row of fractions or floats does not sum to
            exactly 1, or a row of integer weights is all 0 (C2A502).
    """
    for (image, head), rows in ((at, stack[at]) for at in np.ndindex(*stack.shape[:2])):
        where = f"{name}: image {image}, head {head}"
        if kind == "O" and not all(isinstance(x, Rational) for x in rows.flat):
            raise UsageError(
                "C2A502", f"{where} has entries that are not Fraction or int", "Pass Fractions or whole numbers only."
            )
        if kind == "f" and not np.isfinite(rows).all():
            raise UsageError("C2A502", f"{where} has entries that are not finite", "Pass finite numbers.")
        if (rows < 0).any():
            raise UsageError("C2A502", f"{where} has a negative entry", "Pass weights of at least 0.")
        if kind == "i" and not rows.any(1).all():
            raise UsageError(
                "C2A502", f"{name}: a query attends to nothing", "Give each query at least one key with weight."
            )
        if kind == "i":
            continue
        # A sum of floats is rounded, and may be 1 although the numbers do not sum to 1. A sum of integers is exact.
        one, numbers = over_power_of_two(rows.astype(np.float64)) if kind == "f" else (1, rows.tolist())
        for query, row in enumerate(numbers):
            if sum(row) != one:
                miss = f"query {query} misses a sum of 1 by {float(Fraction(sum(row), one) - 1):.1e}"
                raise UsageError(
                    "C2A502",
                    f"{where}, {miss}, and exact attention sums to 1 exactly",
                    "Pass fractions or whole weights, or leave out --exact.",
                )


def as_array(name: str, array: Any) -> NDArray[Any]:
    """Converts a tensor of any device and layout to an array, bfloat16 to float32; an array is returned unchanged.

    Raises:
        UsageError: `array` is neither an array nor a tensor, or is a tensor on the meta device (C2A502).
    """
    if not isinstance(array, torch.Tensor):
        if not hasattr(array, "dtype") or not hasattr(array, "shape"):
            raise UsageError(
                "C2A502",
                f"{name} is of class {type(array).__name__}, neither a layer, array nor tensor",
                "Pass the probabilities after the softmax, as an array (heads, queries, keys).",
            )
        return np.asarray(array)
    if array.is_meta:
        raise UsageError(
            "C2A502",
            f"{name} is on the meta device, and has no numbers",
            "Give it weights first: network.to_empty(device='cpu'), then load_state_dict.",
        )
    # NumPy has neither sparse layouts nor bfloat16, all of whose numbers float32 holds.
    strided = array.detach().to_dense() if array.layout != torch.strided else array.detach()
    return np.asarray((strided.float() if strided.dtype == torch.bfloat16 else strided).cpu().numpy())
