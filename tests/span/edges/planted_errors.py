"""Arrays that are not attention on this grid are refused, by name, with what to do."""

import re
from itertools import product

import torch
from attentions import LINE, OFFSETS, hard, soft

from conv2attn import check_span
from conv2attn.span.span_document import RESIDUAL_LEGEND, layout, picture
from conv2attn.verdicts import Verdict


def test_narrow_attention_in_a_wide_array_counts_as_narrow():
    array = torch.from_numpy(soft((3, 4), 1.0))
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        narrow = array.to(dtype)
        wide = check_span(narrow.double(), grid=(3, 4)).rows[0]
        assert wide.limits == check_span(narrow, grid=(3, 4)).rows[0].limits
        assert any("have the uncertainty" in note for note in wide.notes)


def test_a_leak_just_above_eps_does_not_hold():
    heads = hard((9,), LINE)
    for leak, expected in ((1.8e-3, Verdict.HOLDS), (2.2e-3, Verdict.REFUTED)):
        leaking = heads.copy()
        leaking[1, 4] = 0
        leaking[1, 4, [4, 8]] = 1 - leak / 2, leak / 2
        report = check_span(leaking, (3,), grid=(9,), eps=1e-3)
        found = report.rows[0].deciding.targets[1]
        assert found.floor <= leak
        assert found.residual >= found.floor
        assert found.floor <= leak / (2 - leak) * (1 + 1e-6)  # half of it is left to the other queries
        assert report.verdict is expected
        assert found.residual <= 1e-3 or expected is not Verdict.HOLDS


def test_pictures_are_laid_out_as_the_kernel():
    heads = hard((5, 6), [(0, 0) if offset == (1, -1) else offset for offset in OFFSETS])
    found = check_span(heads, grid=(5, 6)).rows[0].deciding
    assert [line.split() for line in picture(found.targets, 1e-9)] == [["."] * 6, ["."] * 6, ["#", ".", "."] * 2]


def test_a_picture_of_a_space_is_one_of_each_plane_after_the_other():
    planes = [[[0.0, 1.0], [1e-7, 0.0]], [[0.3, 0.0], [0.0, 0.05]]]
    values = {at: planes[at[0]][at[1] + 1][at[2]] for at in product((0, 1), (-1, 0), (0, 1))}
    assert layout(values, 1e-9) == [". #", ", .", "", "* .", ". +"]


def test_the_signs_of_a_picture_are_those_of_its_legend():
    signs = re.findall(r"(\S) (\S+)", RESIDUAL_LEGEND.partition("up to ")[2])
    residuals = [0.0, *(float(limit) for _, limit in signs[:-1]), 9.0]
    drawn = layout({(place,): residual for place, residual in enumerate(residuals)}, 1e-9)
    assert drawn == [" ".join([".", *(sign for sign, _ in signs)])]
