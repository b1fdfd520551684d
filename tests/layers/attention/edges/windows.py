"""Windows of an axis against torch's unfold: values, derivatives of both orders and directions, and under vmap."""

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conv2attn.layers.attention.engines.mixing import Windows
from conv2attn.testing import assert_same_output


@st.composite
def windows_of_lines(draw):
    """Sides, the axis, and the length and step of windows on it: with overlaps, gaps, and numbers left over."""
    shape = draw(st.lists(st.integers(1, 2), min_size=0, max_size=2))
    axis = draw(st.integers(0, len(shape)))
    side = draw(st.integers(1, 9))
    return (*shape[:axis], side, *shape[axis:]), axis, draw(st.integers(1, side)), draw(st.integers(1, 6))


@settings(max_examples=max(10, settings.default.max_examples // 4))
@example(((2, 9), 1, 5, 2))
@given(windows_of_lines())
def test_windows_are_a_view_with_the_values_and_derivatives_of_unfold(drawn):
    shape, *how = drawn
    lines = torch.randn(shape, dtype=torch.float64, requires_grad=True)
    expected, found = lines.unfold(*how), Windows.apply(lines, *how)
    assert found.data_ptr() == lines.data_ptr()
    assert_same_output(found.detach(), expected.detach())
    weights = torch.randn(found.shape, dtype=torch.float64)
    got, wanted = (torch.autograd.grad((each * weights).sum(), lines)[0] for each in (found, expected))
    assert_same_output(got, wanted, 1e-12)
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda x: Windows.apply(x, *how).square(), (lines,))


def test_windows_follow_torch_func():
    lines, tangents = torch.randn(4, 9), torch.randn(4, 9)

    def run(line):
        return Windows.apply(line, 0, 3, 2).square()

    _, found = torch.vmap(lambda *pair: torch.func.jvp(run, pair[:1], pair[1:]))(lines, tangents)
    assert_same_output(found, 2 * lines.unfold(1, 3, 2) * tangents.unfold(1, 3, 2))
    each = torch.vmap(torch.func.grad(lambda line: run(line).sum()))(lines)
    visits = torch.tensor([1, 1, 2, 1, 2, 1, 2, 1, 1])
    assert_same_output(each, 2 * visits * lines, 1e-6)
