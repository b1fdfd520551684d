"""Random small attention in dyadic rationals, against ranks counted exactly: undecided at times, wrong never."""

import flint
import numpy as np
import pytest

from conv2attn import check_span
from conv2attn.verdicts import Strength, Verdict


def contained(attention, asked):
    """Whether the rows asked for are in the span of the attention, all entries multiples of 1/64."""

    def rank(rows):
        return flint.fmpz_mat([[round(64 * x) for x in row] for row in rows.reshape(len(rows), -1).tolist()]).rank()

    return rank(np.concatenate([attention, asked])) == rank(attention)


def random_attention(rng):
    """Clamped hard heads on a line, some repeated, some mixed, some with one wrong query."""
    side, heads = int(rng.integers(3, 8)), int(rng.integers(1, 6))
    attention = np.zeros((heads, side, side))
    for head, offset in enumerate(rng.integers(-2, 3, heads)):
        attention[head, np.arange(side), np.clip(np.arange(side) + offset, 0, side - 1)] = 1
    match rng.integers(3):
        case 1:
            attention = np.tensordot(rng.multinomial(8, np.ones(heads) / heads, heads) / 8, attention, 1)
        case 2:
            head, query = rng.integers(heads), rng.integers(side)
            attention[head, query] = np.roll(attention[head, query], 1)
    return attention


@pytest.mark.parametrize("seed", range(100))
def test_no_verdict_is_wrong(seed):
    rng = np.random.default_rng(seed)
    attention, offsets = random_attention(rng), [-1, 0, 1][: int(rng.integers(1, 4))]
    side = attention.shape[1]
    asked = np.array([[[float(k == q + d) for k in range(side)] for q in range(side)] for d in offsets])
    inside = [q for q in range(side) if all(0 <= q + d < side for d in offsets)]
    row = check_span(attention, offsets=[(d,) for d in offsets], grid=(side,)).rows[0]
    known = {
        "per-query": all(contained(attention[:, [q]], asked[:, [q]]) for q in range(side)),
        "joint": contained(attention, asked),
        "interior": contained(attention[:, inside], asked[:, inside]),
    }
    for name, answer in known.items():
        found = row.condition(name).verdict
        assert found in (Verdict.UNDECIDED, Verdict.HOLDS if answer else Verdict.REFUTED)
        assert found is not Verdict.UNDECIDED or (answer and ((attention != 0) & (attention != 1)).any())
    exact = check_span(attention, offsets=[(d,) for d in offsets], grid=(side,), exact=True).rows[0]
    for name, answer in known.items():
        if exact.condition(name).targets:
            assert exact.condition(name).verdict is (Verdict.HOLDS if answer else Verdict.REFUTED)
            assert exact.condition(name).strength is Strength.PROVED
