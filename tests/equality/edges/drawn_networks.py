"""A network is drawn, with a harmless rewrite, a fold and a mistake: one formula, one map but for rounding, and two."""

import copy

import torch
import torch.nn.functional as F
from equality.pairs import Net
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict

SIZE = (2, 7, 6)
ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh, "elu": F.elu}


def convolved(net, x):
    """A convolution, or the product of patches and weights that it is."""
    if not net.by_hand:
        return net.conv(x)
    patches = F.unfold(F.pad(x, (1, 1, 1, 1)), 3)
    return (net.conv.weight.flatten(1) @ patches + net.conv.bias[:, None]).unflatten(-1, x.shape[-2:])


def block(channels, activation, residual):
    """A convolution, a norm with statistics and an activation; perhaps beside what comes in."""

    def code(net, x):
        y = ACTIVATIONS[net.activation](net.norm(convolved(net, x)))
        return y + x if residual else y

    norm = nn.BatchNorm2d(channels)
    for numbers in (norm.running_mean, norm.weight, norm.bias):
        nn.init.normal_(numbers)
    nn.init.uniform_(norm.running_var, 0.5, 2)
    return Net(code, conv=nn.Conv2d(channels, channels, 3, padding=1), norm=norm, activation=activation, by_hand=False)


def drawn(channels, blocks, seed):
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        stem, head = nn.Conv2d(SIZE[0], channels, 1), nn.Linear(channels, 3)
        made = nn.Sequential(*(block(channels, *each) for each in blocks))
    return Net(lambda net, x: net.head(net.blocks(net.stem(x)).mean((2, 3))), stem=stem, blocks=made, head=head)


KINDS = st.lists(st.tuples(st.sampled_from(sorted(ACTIVATIONS)), st.booleans()), min_size=1, max_size=3)
NETWORKS = st.builds(drawn, st.integers(2, 5), KINDS, st.integers(0, 99)).map(nn.Module.eval)


def rewritten(network, block):
    block.by_hand = True


def folded(network, block):
    block.conv, block.norm = fuse_conv_bn_eval(block.conv, block.norm), nn.Identity()


def with_another_epsilon(network, block):
    block.norm.eps = 1e-3


def with_another_activation(network, block):
    block.activation = "silu" if block.activation != "silu" else "gelu"


def without_its_bias(network, block):
    nn.init.zeros_(block.conv.bias)


def with_one_other_weight(network, block):
    block.conv.weight.data[0, 0, 1, 1] += 0.01


MISTAKES = (with_another_epsilon, with_another_activation, without_its_bias, with_one_other_weight)


def changed(network, at, change):
    other = copy.deepcopy(network)
    change(other, other.blocks[at % len(other.blocks)])
    return other


@settings(max_examples=4)
@given(network=NETWORKS, at=st.integers(0, 2))
def test_a_harmless_rewrite_is_one_formula(network, at):
    report = certify(network, changed(network, at, rewritten), input_size=SIZE)
    assert report.verdict is Verdict.HOLDS, report.to_text()
    assert report.strength in (Strength.IDENTIFIED, Strength.PROVED)


@settings(max_examples=4)
@given(network=NETWORKS, at=st.integers(0, 2))
def test_a_fold_is_one_map_but_for_rounding(network, at):
    report = certify(network, changed(network, at, folded), input_size=SIZE)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.ROUNDED), report.to_text()


@settings(max_examples=6)
@given(network=NETWORKS, at=st.integers(0, 2), mistake=st.sampled_from(MISTAKES))
def test_a_mistake_never_holds_and_its_place_is_the_block_that_was_changed(network, at, mistake):
    report = certify(network, changed(network, at, mistake), input_size=SIZE)
    assert report.verdict is not Verdict.HOLDS
    # What parts stands at the argument of the first function behind the change: in the block, or just behind it.
    assert f"blocks.{at % len(network.blocks)}" in report.place.second, report.place.in_words()
