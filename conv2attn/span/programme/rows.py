"""The programme of one row, whole: `min |e - phi A|_1 over |phi|_1 <= B`, as its dual, in as many rows as heads."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from conv2attn.span.conditions.problem import Array
from conv2attn.span.programme.factors import NEGLIGIBLE
from conv2attn.span.programme.master import AT_ONCE, LARGE


@final
@dataclass(frozen=True, eq=False)
class RowProgramme:
    """A row `asked` (keys) of attention (heads, keys), from a mixing `start` within the norm `bound`."""

    attention: Array
    asked: Array
    start: Array
    bound: float

    def padded(self, mixing: Array, norm: float) -> list[Array]:
        """Mixings of about this norm that make what `mixing` makes: along heads that float64 does not tell apart."""
        directions, singular, _ = np.linalg.svd(self.attention)
        short, found = norm - float(np.abs(mixing).sum()), []
        for along in directions.T[np.count_nonzero(singular > NEGLIGIBLE * singular.max(initial=0.0)) :]:
            turned = along * np.sign(mixing @ np.sign(along) or 1.0) / np.abs(along).sum()
            found += [mixing + short * size * turned for size in (1.0, 4.0)]
        return found

    def parts(self) -> tuple[Array, Array, Array, float]:
        """The residual at the start (1 at most), heads orthonormal in the same unit, the frame that makes them so."""
        left = self.asked - self.start @ self.attention
        unit = float(np.abs(left).max(initial=0.0)) or 1.0
        directions, singular, _ = np.linalg.svd(self.attention, full_matrices=False)
        kept = singular > NEGLIGIBLE * max(singular.max(initial=0.0), 1e-300)
        frame = directions[:, kept] * np.minimum(1.0 / singular[kept], self.bound / unit) * unit
        return left / unit, frame.T @ self.attention / unit, frame, unit


def solve_rows(rows: Sequence[RowProgramme]) -> list[tuple[Array, Array] | None]:
    """For each row the mixing that leaves least, and the dual y (keys) that shows it; None where the solver fails.

    With `left = e - start A`, `phi = start + frame x` and `basis = frame^T A`, the dual of the programme in x is
    `max <y, left> + <w, start> - B t` subject to `basis y = frame^T w`, `|y| <= 1` and `|w| <= t`.
    """
    if len(rows) > 1 and sum(row.attention.size for row in rows) > AT_ONCE:
        return solve_rows(rows[: len(rows) // 2]) + solve_rows(rows[len(rows) // 2 :])
    from scipy.optimize import linprog
    from scipy.sparse import block_diag, csr_array

    costs, equal, below, limits, shapes = [], [], [], [], []
    parts = [row.parts() for row in rows]
    for row, (left, basis, frame, unit) in zip(rows, parts, strict=True):
        heads = len(row.start) if row.bound < LARGE * max(1.0, float(np.abs(row.start).sum())) else 0
        keys, scale = len(left), 1.0 / unit
        tail = [-row.start[:heads] * scale, np.full(1 if heads else 0, row.bound * scale)]
        costs.append(np.concatenate([-left, *tail]))
        extra = np.zeros((basis.shape[0], 1 if heads else 0))
        equal.append(csr_array(np.hstack([basis, -(frame * scale).T[:, :heads], extra])))
        eye, ones = np.eye(heads), -np.ones((heads, 1 if heads else 0))
        none = np.zeros((heads, keys))
        below.append(csr_array(np.vstack([np.hstack([none, eye, ones]), np.hstack([none, -eye, ones])])))
        limits += [(-1.0, 1.0)] * keys + [(None, None)] * heads + [(0.0, None)] * (1 if heads else 0)
        shapes.append((keys, basis.shape[0], costs[-1].size))
    matrix, inequality = block_diag(equal, format="csr"), block_diag(below, format="csr")
    given = {"A_eq": matrix, "b_eq": np.zeros(matrix.shape[0]), "bounds": limits, "method": "highs"}
    if inequality.shape[0]:
        given |= {"A_ub": inequality, "b_ub": np.zeros(inequality.shape[0])}
    found = linprog(np.concatenate(costs), **given)
    if found.status != 0:
        return [answer for row in rows for answer in solve_rows([row])] if len(rows) > 1 else [None]
    answers: list[tuple[Array, Array] | None] = []
    column = line = 0
    for row, (_, _, frame, _), (keys, lines, width) in zip(rows, parts, shapes, strict=True):
        y, x = found.x[column : column + keys], -found.eqlin.marginals[line : line + lines]
        mixing = row.start + frame @ x
        size = float(np.abs(mixing).sum())
        answers.append((mixing if size <= row.bound else mixing * (row.bound * (1 - 1e-15) / size), y))
        column, line = column + width, line + lines
    return answers
