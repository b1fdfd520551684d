"""Random programs of views and changes in place: two whose terms are one compute the same numbers.

The suite draws one round of programs, each beside a changed one; `make attack` draws ten.
"""

import os
import random
from itertools import combinations

import pytest
import torch
from torch import nn

from conv2attn.equality.context.graph import Unexported, graph_of
from conv2attn.equality.context.normal_form import Unnamed, normal_form
from conv2attn.equality.context.terms import Terms

ROUNDS = int(os.environ.get("CONV2ATTN_ATTACK", "1000")) // 1000
PROGRAMS = 60
VIEWS = (
    *(
        lambda v, w, n: v.transpose(-1, -2),
        lambda v, w, n: v[..., n : n + 2],
        lambda v, w, n: v.permute(*reversed(range(v.ndim))),
    ),
    *(lambda v, w, n: v.flatten(), lambda v, w, n: v.view(-1), lambda v, w, n: v.unsqueeze(0), lambda v, w, n: v[0]),
    *(lambda v, w, n: v.squeeze(), lambda v, w, n: v.select(-1, n), lambda v, w, n: v.narrow(-1, n, 1)),
    *(
        lambda v, w, n: v.clone(),
        lambda v, w, n: v.contiguous(),
        lambda v, w, n: v.view_as(v),
        lambda v, w, n: v.detach(),
    ),
    *(lambda v, w, n: v.chunk(2, -1)[n % 2], lambda v, w, n: v.unbind(-1)[n], lambda v, w, n: v.expand(2, *v.shape)),
    *(lambda v, w, n: v.diagonal(), lambda v, w, n: v.unfold(-1, 2, 1), lambda v, w, n: v[..., ::2]),
    *(lambda v, w, n: torch.dropout(v, 0.5, False), lambda v, w, n: v.as_strided((2, 2), (1, 2), n)),
    *(lambda v, w, n: v.view(torch.int64).view(v.dtype), lambda v, w, n: torch.complex(v, v).real),
)
CHANGES = (
    *(lambda v, w, n: v.add_(n + 1), lambda v, w, n: v.mul_(w), lambda v, w, n: v.relu_(), lambda v, w, n: v.zero_()),
    *(lambda v, w, n: v.copy_(w), lambda v, w, n: v.clamp_(max=0.1 * n), lambda v, w, n: v.masked_fill_(v > 0, n)),
    *(lambda v, w, n: v.sub_(w), lambda v, w, n: v.select(-1, n).fill_(n), lambda v, w, n: v.cumsum_(-1)),
    *(lambda v, w, n: v.gt_(0.1), lambda v, w, n: v.div_(2), lambda v, w, n: v.pow_(2), lambda v, w, n: v.detach_()),
    *(
        lambda v, w, n: v.t_(),
        lambda v, w, n: v.unsqueeze_(0),
        lambda v, w, n: v.squeeze_(),
        lambda v, w, n: v.swapaxes_(0, 1),
    ),
)
RESULTS = (
    *(
        lambda v, w, n: v + n,
        lambda v, w, n: v * w,
        lambda v, w, n: v - w,
        lambda v, w, n: w - v,
        lambda v, w, n: v.sum(-1),
    ),
    *(
        lambda v, w, n: torch.cat([v, w], -1),
        lambda v, w, n: torch.maximum(v, w),
        lambda v, w, n: v.max(),
        lambda v, w, n: -v,
    ),
    *(lambda v, w, n: torch.where(v > 0, v, w), lambda v, w, n: v.square(), lambda v, w, n: v.int().to(v.dtype)),
)
STEPS = (*VIEWS, *CHANGES, *RESULTS)
IMAGES = torch.randn(2, 1, 2, 6, 6, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def run(program, x):
    """What a program of (step, tensor, other tensor, number) returns: the tensor of its last entry."""
    tensors = [x.clone(), x * 0.5 + 0.25]
    for step, first, second, number in program[:-1]:
        made = STEPS[step](tensors[first % len(tensors)], tensors[second % len(tensors)], number)
        tensors += [] if step in range(len(VIEWS), len(VIEWS) + len(CHANGES)) else [made]
    return tensors[program[-1][1] % len(tensors)]


class Programs(nn.Module):
    """Many programs of what a convolution returns."""

    def __init__(self, programs):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv, self.programs = nn.Conv2d(2, 4, 1, dtype=torch.float64), programs

    def forward(self, image):
        hidden = self.conv(image)[0, :, :4, :4].mean(0)
        return tuple(run(program, hidden) for program in self.programs)


def drawn(chosen):
    """Programs that run, each beside one in which an entry is another."""
    programs = []
    while len(programs) < 2 * PROGRAMS:
        program = [entry(chosen) for _ in range(chosen.randint(4, 9))]
        changed = list(program)
        changed[chosen.randrange(len(program))] = entry(chosen)
        programs += [each for each in (program, changed) if runs(each)]
    return programs


def entry(chosen):
    (kind,) = chosen.choices((VIEWS, CHANGES, RESULTS), (5, 5, 1))
    return STEPS.index(chosen.choice(kind)), chosen.randrange(9), chosen.randrange(9), chosen.randint(0, 2)


def runs(program):
    try:
        with torch.no_grad():
            (made,) = Programs([program])(IMAGES[0])
    except (RuntimeError, IndexError, TypeError, ValueError):
        return False
    return bool(made.numel()) and made.dtype == torch.float64


def terms_of(programs, terms):
    """The programs that have a normal form, each with its term."""
    try:
        graph = graph_of(Programs(programs).eval(), IMAGES[0], every_size=False)
        form = normal_form(graph, terms, lambda number, layer, read: terms("layer", read))
    except (Unexported, Unnamed):
        half = len(programs) // 2
        return [*terms_of(programs[:half], terms), *terms_of(programs[half:], terms)] if half else []
    return list(zip(programs, form.returned, strict=True))


@pytest.mark.parametrize("seed", range(ROUNDS))
def test_programs_of_one_term_compute_the_same_numbers(seed):
    pairs = combinations(terms_of(drawn(random.Random(seed)), Terms()), 2)
    alike = [(first, second) for (first, ours), (second, theirs) in pairs if ours is theirs and first != second]
    assert alike
    for pair in alike:
        for image in IMAGES:
            with torch.no_grad():
                torch.testing.assert_close(*Programs(pair)(image), rtol=1e-9, atol=1e-12, equal_nan=True, msg=str(pair))
