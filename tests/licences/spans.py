"""Licences of what is asked of given attention: whether it spans the shifts, and how few heads a convolution needs."""

from itertools import combinations

import flint
import torch
from licences.cases import Licence

from conv2attn.layers.theorem import Convolution
from conv2attn.theory.basis import Padding
from conv2attn.verdicts import Verdict


def rank(rows):
    return flint.fmpz_mat(rows).rank() if rows and rows[0] else 0


def heads_on_a_line(kinds, tokens, keys, offsets, exact):
    """Halves of heads on a line of tokens, offsets, and whether the floats are declared exact.

    A head reads a neighbour, a neighbour or itself by turns, any keys, or the means of any two keys.
    """
    heads = []
    reading = keys.fill(len(kinds), 2, tokens).long() % tokens
    for kind, (reads, others) in zip(kinds, reading.tolist(), strict=True):
        shift = others[0] % 3 - 1
        if kind in ("shift", "swap"):
            reads = [(q + (shift if kind == "shift" else (q + shift) % 2)) % tokens for q in range(tokens)]
        pairs = list(zip(reads, others if kind == "two" else reads, strict=True))
        heads.append([[pair.count(k) for k in range(tokens)] for pair in pairs])
    return heads, list(offsets), "two" in kinds or exact


def shifted(tokens, offset):
    """The rows that an offset asks for; zeros where it leaves the grid."""
    return [[int(k == q + offset) for k in range(tokens)] for q in range(tokens)]


def spanned(heads, targets):
    """Whether every target is a combination of the heads, all given as rows of integers."""
    return rank(heads) == rank([*heads, *targets])


def expected(heads, offsets, condition):
    tokens = len(heads[0])
    wanted = [shifted(tokens, offset) for (offset,) in offsets]
    if condition == "joint":
        return spanned(*([[x for row in rows for x in row] for rows in group] for group in (heads, wanted)))
    return all(
        spanned([h[q] for h in heads], [w[q] for w in wanted if any(w[q])] or [h[q] for h in heads])
        for q in range(tokens)
    )


def answers(condition):
    def agrees(check, case):
        heads, offsets, exact = case
        asked = {"offsets": offsets, "grid": len(heads[0]), "exact": exact, "condition": condition}
        found = check(torch.tensor(heads).double() / 2, **asked)
        held = expected(heads, offsets, condition)
        return found.verdict is (Verdict.HOLDS if held else Verdict.REFUTED)

    return agrees


def convolution(kernel, d_out, d_in, groups, taps):
    """A convolution with whole numbers as weights."""
    ones = (1,) * len(kernel)
    weight = taps.fill(groups * d_out, d_in, *kernel)
    return Convolution(weight, None, ones, ones, Padding.none(len(kernel)), groups)


def needed(convolution):
    """(heads one-hot, heads free): the non-zero taps; their rank, and one more where some y >= 0, not 0, has y'W = 0.

    Such a y, if there is one, has one with the least support, whose rows are dependent in one way: they are tried all.
    """
    taps = [[int(x) for x in row] for row in convolution.weight.flatten(2).permute(2, 0, 1).flatten(1).tolist()]
    used = [row for row in taps if any(row)]
    r = rank(used)
    for size in range(1, r + 2):
        for rows in combinations(used, size):
            if rank([list(row) for row in rows]) == size - 1:
                null, count = flint.fmpz_mat([list(column) for column in zip(*rows, strict=True)]).nullspace()
                y = [int(null[i, 0]) for i in range(size)]
                if count == 1 and (min(y) > 0 or max(y) < 0):
                    return len(used), r + 1
    return len(used), r


def are_needed(fewest, convolution):
    """The numbers of claim HEADS, and patterns that are rows of attention and make the taps."""
    found = fewest(convolution)
    if (found.hard, found.free) != needed(convolution):
        return False
    taps = int(torch.Size(convolution.kernel_size).numel())
    rows = torch.tensor([[float(x) for x in row] for row in found.patterns], dtype=torch.float64).reshape(-1, taps)
    made = torch.einsum("ht,hoi->oit", rows, torch.as_tensor(found.matrices))
    attention = all(min(row) >= 0 and sum(row) == 1 for row in found.patterns)
    return attention and torch.allclose(made, convolution.weight.flatten(2), atol=1e-9)


LICENCES = {
    ("L3", "span.check_span"): Licence(
        answers("joint"),
        shape=heads_on_a_line,
    ),
    ("L3p", "span.check_span"): Licence(
        answers("per-query"),
        shape=heads_on_a_line,
    ),
    ("HEADS", "proofs.fewest_heads"): Licence(
        are_needed,
        examples=80,
        shape=convolution,
    ),
}
