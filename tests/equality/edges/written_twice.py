"""53 layers and networks, each in two ways in which people write it: 48 are one formula, 5 equal but for rounding."""

import pytest
from equality.written.attention import ATTENTION
from equality.written.convolutions import CONVOLUTIONS
from equality.written.gates import GATES
from equality.written.norms import NORMS
from equality.written.pair import changed, networks

from conv2attn.equality import certify
from conv2attn.equality.fingerprint import identify
from conv2attn.verdicts import Strength, Verdict

PAIRS = {**ATTENTION, **GATES, **NORMS, **CONVOLUTIONS}
ROUNDED = {
    *("GEGLU by one product, by two", "mish", "batch norm by hand", "batch norm folded", "a low rank merged"),
}


def test_so_many_pairs_hold():
    assert len(PAIRS) == 53
    assert len(PAIRS.keys() - ROUNDED) == 48
    assert PAIRS.keys() >= ROUNDED


@pytest.mark.rotated
@pytest.mark.parametrize("name", PAIRS)
def test_the_verdict_of_two_ways_to_write_a_network(name):
    first, second, images = networks(PAIRS[name])
    certificate = certify(first, second, images=images)
    strength = Strength.ROUNDED if name in ROUNDED else Strength.IDENTIFIED
    assert (certificate.verdict, certificate.strength) == (Verdict.HOLDS, strength)


@pytest.mark.rotated
@pytest.mark.parametrize("name", PAIRS)
def test_one_number_changed_in_the_second_never_holds(name):
    first, second, images = networks(PAIRS[name])
    assert certify(first, changed(second), images=images).verdict != Verdict.HOLDS


@pytest.mark.parametrize("name", ["nn.MultiheadAttention, by hand", "nn.TransformerEncoderLayer, by hand"])
def test_a_kernel_for_a_whole_layer_is_named(name):
    first, second, images = networks(PAIRS[name])
    reason = identify(first, second, images).reason
    assert "native_multi_head_attention" in reason or "transformer_encoder_layer_fwd" in reason
