"""A network is drawn, with a harmless rewrite, a fold and a mistake: one formula, one map but for rounding, and two."""

import copy

import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval

from conv2attn.equality import certify
from conv2attn.verdicts import Strength, Verdict

SIZE = (2, 7, 6)
ACTIVATIONS = {"relu": F.relu, "gelu": F.gelu, "silu": F.silu, "tanh": torch.tanh, "elu": F.elu}


class Block(nn.Module):
    """A convolution, a norm with statistics and an activation; perhaps beside what comes in."""

    def __init__(self, channels, activation, residual):
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1)
        self.norm = nn.BatchNorm2d(channels)
        self.activation, self.residual, self.by_hand = activation, residual, False

    def forward(self, x):
        y = self.convolved(x) if self.by_hand else self.conv(x)
        y = ACTIVATIONS[self.activation](self.norm(y))
        return y + x if self.residual else y

    def convolved(self, x):
        """The convolution as a product of patches and weights."""
        patches = F.unfold(F.pad(x, (1, 1, 1, 1)), 3)
        return (self.conv.weight.flatten(1) @ patches + self.conv.bias[:, None]).unflatten(-1, x.shape[-2:])


class Drawn(nn.Module):
    def __init__(self, channels, blocks, seed):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            self.stem, self.head = nn.Conv2d(SIZE[0], channels, 1), nn.Linear(channels, 3)
            self.blocks = nn.Sequential(*(Block(channels, *each) for each in blocks))
            for block in self.blocks:
                nn.init.normal_(block.norm.running_mean)
                nn.init.uniform_(block.norm.running_var, 0.5, 2)
                nn.init.normal_(block.norm.weight)
                nn.init.normal_(block.norm.bias)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


KINDS = st.lists(st.tuples(st.sampled_from(sorted(ACTIVATIONS)), st.booleans()), min_size=1, max_size=3)
NETWORKS = st.builds(Drawn, st.integers(2, 5), KINDS, st.integers(0, 99)).map(nn.Module.eval)


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
