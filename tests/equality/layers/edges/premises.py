"""A number and a finding of a certificate name a claim where its premises hold, and say which premise does not."""

import copy

import pytest
import torch
from changes import changing
from equality.pairs import Net, layer, row_of
from torch import nn

from conv2attn import certify, convert
from conv2attn.theory.basis import Padding, Sites
from conv2attn.theory.bounds import WITHOUT_THEOREM

IMAGE = torch.rand(1, 4, 8, 9, generator=torch.Generator().manual_seed(0))


def licences(row):
    return {finding.part: finding.licensed_by for finding in row.findings if finding.part in ("geometry", "weights")}


def test_two_convolutions_rest_on_no_claim_about_attention():
    conv = layer()
    assert licences(row_of(conv, copy.deepcopy(conv), IMAGE)) == {"geometry": (), "weights": ()}


def test_what_refutes_rests_on_no_claim_that_the_weights_agree():
    conv = layer()
    attention = convert(conv)
    with torch.no_grad():
        conv.weight[0, 0, 0, 0] += 1
    assert licences(row_of(conv, attention, IMAGE)) == {"geometry": ("L1",), "weights": ()}


@pytest.mark.parametrize(("options", "geometry"), [({}, ("L1",)), ({"stride": 2}, ("L1", "STR"))])
def test_a_stride_is_named_where_it_is_above_one(options, geometry):
    conv = layer(**options)
    assert licences(row_of(conv, convert(conv), IMAGE))["geometry"] == geometry


def test_the_border_is_named_where_heads_read_beyond_the_grid():
    conv = layer(padding_mode="replicate")
    attention = convert(conv)
    assert licences(row_of(conv, attention, IMAGE))["geometry"] == ("L1",)
    bare = without_padding(attention)
    assert licences(row_of(conv, bare, IMAGE))["geometry"] == ("L1", "PAD")


def without_padding(attention):
    """The layer on the image itself: its heads read the pixel nearest to their target, which is replicate padding."""
    bare = copy.deepcopy(attention)
    bare.image_padding = Padding((0, 0), (0, 0))
    bare.sites = Sites((1, 1), (0, 0), (0, 0))
    return bare


@pytest.mark.parametrize(("engine", "named"), [("dense", "ROW"), ("separable", "LEFT"), ("auto", "LEFT")])
def test_frozen_heads_that_leave_keys_out_rest_on_the_claim_that_allows_it(engine, named):
    conv = layer()
    attention = convert(conv, alpha=3.0)
    attention.engine = engine
    licensed = row_of(conv, attention, IMAGE).licensed_by
    assert {"LEFT", "ROW"} & set(licensed.bound) == {named}
    assert (WITHOUT_THEOREM in licensed.bound, licensed.missing) == (False, ())


@pytest.mark.parametrize(("alpha", "moved"), [(0.001, 0.0), (3.0, 0.25)])
def test_the_largest_leak_is_a_share(alpha, moved):
    conv = layer()
    attention = convert(conv, alpha=alpha)
    with torch.no_grad(), changing(attention, "center") as numbers:
        numbers[:, 0] += moved
    row = row_of(conv, attention, IMAGE)
    assert 0 < row.leak <= 1
    assert "SOFT" not in row.licensed_by.leak


def test_the_chance_of_an_identified_certificate_names_its_claim():
    first = nn.Sequential(layer(), nn.ReLU()).eval()
    certificate = certify(first, Net(lambda net, x: net.conv(x).clamp(min=0), conv=first[0]).eval(), images=IMAGE)
    assert certificate.identified is not None
    (formula,) = (finding for finding in certificate.between if finding.part == "formula")
    assert formula.licensed_by == ("FINGERPRINT", WITHOUT_THEOREM)


def test_a_report_in_full_says_which_premise_does_not_hold():
    conv = layer()
    attention = convert(conv, alpha=3.0)
    attention.engine = "sdpa"
    text = certify(conv, attention, images=IMAGE).to_text(verbose=True)
    assert "premises that do not hold: ROW: maximum known before the sum" in text
