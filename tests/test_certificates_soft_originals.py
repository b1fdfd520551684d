"""An original that is itself attention is what its taps say only as far as it is hard: its leak counts as well."""

import pytest
import torch
from torch import nn

import conv2attn
from conv2attn.certificates import certify
from conv2attn.certificates.computed.leak import check_leak, check_leaks
from conv2attn.certificates.readings.reading import reading_of
from conv2attn.verdicts import Strength, Verdict

with torch.random.fork_rng():
    torch.manual_seed(0)
    CONVOLUTION = nn.Conv1d(2, 3, 3, padding=1)


def layer(alpha):
    """The attention of one sharpness, or the convolution."""
    return conv2attn.convert(CONVOLUTION, alpha=alpha) if alpha else CONVOLUTION


@pytest.mark.parametrize("converted", [None, 46, 128])
@pytest.mark.parametrize("alpha", [0.1, 3])
def test_a_soft_original_is_no_convolution(alpha, converted):
    """These two differ by up to 0.4 on images within +-1, and were called proved."""
    report = certify(layer(alpha), layer(converted), input_size=(2, 7))
    assert report.verdict is Verdict.REFUTED
    (leak,) = (finding for finding in report.rows[0].findings if finding.part == "leak")
    assert (leak.verdict, leak.code) == (Verdict.REFUTED, "C2A403")
    assert leak.sentence.startswith("in the original, head 0 leaks at least")
    assert report.rows[0].leak > 0.05


@pytest.mark.parametrize(
    ("original", "converted", "strength"),
    [(46, 128, "bounded"), (46, None, "bounded"), (128, 46, "bounded"), (None, 46, "bounded"), (46, 46, "bounded"),
     (128, 128, "proved"), (128, None, "proved"), (None, 128, "proved"), (200, 128, "proved")],
)  # fmt: skip
def test_the_strength_is_that_of_the_softer_one(original, converted, strength):
    report = certify(layer(original), layer(converted), input_size=(2, 7))
    assert (report.verdict, report.rows[0].strength) == (Verdict.HOLDS, Strength(strength))
    assert (report.rows[0].leak > 0) is (strength == "bounded")


def test_the_larger_leak_is_told():
    hard, firm, soft = (reading_of(layer(alpha)) for alpha in (128, 20, 3))
    assert check_leaks(soft, soft) == check_leak(soft) == check_leaks(firm, soft)
    found, leak = check_leaks(soft, firm)
    assert (found.sentence, leak) == (f"in the original, {check_leak(soft)[0].sentence}", check_leak(soft)[1])
    assert check_leaks(hard, firm) == check_leaks(firm, firm) == check_leak(firm)
    told, least = check_leaks(firm, hard)
    assert (told.sentence, least) == (f"in the original, {check_leak(firm)[0].sentence}", check_leak(firm)[1])
    assert check_leaks(hard, hard) == (check_leak(hard)[0], 0.0)
    quiet = reading_of(layer(46))
    assert check_leak(quiet)[0].sentence == ""
    assert check_leaks(quiet, hard) == check_leak(quiet)
