"""What callers ask of two networks that are one: other masks, fused kernels, layers that pickle themselves."""

import contextlib
import copy
import dataclasses

import pytest
import torch
from equality.pairs import After, Net
from torch import Tensor, nn
from torch.nn import functional as F

from conv2attn.equality import certify
from conv2attn.errors import UsageError
from conv2attn.networks import copy_network
from conv2attn.networks.fast_path import without_fast_path
from conv2attn.verdicts import Strength, Verdict

LEAST = torch.finfo(torch.float32).min


def causal(fill):
    """Causal attention by a mask that `fill` marks, or by torch's own where there is none."""

    def attend(net, x):
        q, k, v = net.projection(x).chunk(3, -1)
        if fill is None:
            return F.scaled_dot_product_attention(q, k, v, is_causal=True)
        mask = torch.full((x.shape[1], x.shape[1]), fill).triu(1)
        return (q @ k.mT / q.shape[-1] ** 0.5 + mask).softmax(-1) @ v

    torch.manual_seed(0)
    return Net(attend, projection=nn.Linear(16, 48)).eval()


@pytest.mark.parametrize(("fill", "same"), [(LEAST, True), (-1e31, True), (-1e4, False)])
def test_the_least_float_masks_as_infinity_does_and_a_small_number_does_not(fill, same):
    certificate = certify(causal(None), causal(fill), input_size=(5, 16))
    assert ((certificate.verdict, certificate.strength) == (Verdict.HOLDS, Strength.IDENTIFIED)) is same
    assert ("within +-1e29" in certificate.claim) is same


def test_the_least_float_is_no_infinity_outside_a_softmax():
    assert (
        certify(Net(lambda _, x: x + LEAST), Net(lambda _, x: x - torch.inf), input_size=(3, 4, 4)).verdict
        is not Verdict.HOLDS
    )


def test_the_fused_kernel_of_attention_is_off_while_networks_are_compared_and_on_again_afterwards():
    states = []

    def attend(net, x):
        states.append(torch.backends.mha.get_fastpath_enabled())
        return net.attention(x, x, x, need_weights=False)[0]

    attention = Net(attend, attention=nn.MultiheadAttention(16, 4, batch_first=True)).eval()
    assert certify(attention, copy_network(attention), input_size=(3, 16))
    assert not any(states)
    assert torch.backends.mha.get_fastpath_enabled()


def test_a_layer_that_is_unpickled_by_its_constructor_keeps_its_mode():
    class Rearranged(nn.Module):
        def __init__(self, factor):
            super().__init__()
            self.factor = factor

        def __getstate__(self):
            return {"factor": self.factor}

        def __setstate__(self, state):
            self.__init__(**state)

        def forward(self, x):
            return F.pixel_shuffle(x, self.factor)

    conv = nn.Conv2d(3, 8, 3)
    first, second = nn.Sequential(conv, nn.PixelShuffle(2)).eval(), nn.Sequential(conv, Rearranged(2)).eval()
    assert not copy_network(second)[1].training
    assert certify(first, second, input_size=(3, 6, 7))


@dataclasses.dataclass
class Named:
    logits: Tensor
    features: Tensor | None = None


def packed(pack, bias=0.0):
    """A small network that packs what it returns."""

    def code(net, y):
        y = y.relu()
        return net.pack(y.mean((2, 3)) + net.bias, y)

    return After(code, pack=pack, bias=bias).eval()


PACKINGS = {
    "a tensor": lambda logits, _: logits,
    "a tuple": lambda logits, _: (logits,),
    "a list": lambda logits, _: [logits],
    "a dictionary": lambda logits, _: {"logits": logits},
    "a dataclass": lambda logits, _: Named(logits),
}
TWO_FIELDS = lambda logits, features: {"logits": logits, "features": features}  # noqa: E731


@pytest.mark.parametrize("one", PACKINGS)
@pytest.mark.parametrize("other", PACKINGS)
def test_packaging_never_changes_a_verdict(one, other):
    first, second, wrong = packed(PACKINGS[one]), packed(PACKINGS[other]), packed(PACKINGS[other], 0.1)
    certificate = certify(first, second, input_size=(3, 6, 7))
    assert certificate, certificate.to_text()
    assert certificate.strength is (Strength.PROVED if one == other else Strength.IDENTIFIED)
    assert certify(first, wrong, input_size=(3, 6, 7)).verdict is not Verdict.HOLDS


def test_the_claim_names_the_tensors_that_were_compared():
    first = packed(PACKINGS["a tensor"])
    claim = certify(first, packed(PACKINGS["a dictionary"]), input_size=(3, 6, 7)).claim
    assert ", of output and output['logits']" in claim
    second = packed(TWO_FIELDS)
    assert certify(first, second, input_size=(3, 6, 7)).verdict is Verdict.UNDECIDED
    assert ", of output and output['logits']" in certify(first, second, input_size=(3, 6, 7), match={0: "logits"}).claim
    other = certify(first, second, input_size=(3, 6, 7), match={0: "features"})
    assert other.verdict is not Verdict.HOLDS
    with pytest.raises(UsageError, match="returns no tensor 'scores'"):
        certify(first, second, input_size=(3, 6, 7), match={0: "scores"})


def test_tensors_that_order_alone_pairs_may_hold_and_refute_nothing():
    first, second, crossed = (
        packed(pack) for pack in (TWO_FIELDS, lambda y, z: (y, y + z.mean() * 0), lambda y, z: (2 * y, y))
    )
    first.pack = lambda y, _: {"logits": y, "again": y}
    assert certify(first, second, input_size=(3, 6, 7)).verdict is Verdict.HOLDS
    first.pack = lambda y, _: {"logits": y, "double": 2 * y}
    certificate = certify(first, crossed, input_size=(3, 6, 7))
    assert certificate.verdict is Verdict.UNDECIDED, certificate.to_text()
    assert "name them with --match A=B" in certificate.to_text()
    assert certify(first, crossed, input_size=(3, 6, 7), match={"logits": 1, "double": 0})
    assert certify(first, crossed, input_size=(3, 6, 7), match={"logits": 0, "double": 1}).verdict is Verdict.REFUTED


COUPLED = {
    "statistics of the batch": (nn.BatchNorm2d(3, track_running_stats=False), nn.InstanceNorm2d(3)),
    "sums over images": (lambda x: x * x.sum(), lambda x: x * x.sum((1, 2, 3), keepdim=True)),
    "sums over three images": (
        lambda x: x * (x.sum() if len(x) > 2 else x.sum((1, 2, 3), keepdim=True)),
        lambda x: x * x.sum((1, 2, 3), keepdim=True),
    ),
    "two images as a pair": (
        lambda x: x * (x.amax((1, 2, 3), keepdim=True) if len(x) == 2 else x.sum()),
        lambda x: x * (x.amax((1, 2, 3), keepdim=True) if len(x) == 2 else x.sum((1, 2, 3), keepdim=True)),
    ),
    "means over images": (lambda x: x - x.mean((0, 2, 3), keepdim=True), lambda x: x - x.mean((2, 3), keepdim=True)),
}


ONE = nn.Parameter(torch.ones(1))


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("name", COUPLED)
def test_a_pair_of_which_one_couples_the_images_never_holds(name, count):
    torch.manual_seed(0)
    first, second = (
        Net(lambda net, x: net.function(x * net.scale), function=each, scale=ONE) for each in COUPLED[name]
    )
    certificate = certify(first, second, images=torch.rand(count, 3, 5, 6))
    assert certificate.verdict is not Verdict.HOLDS


def test_layers_in_another_order_of_channels_are_one_formula():
    torch.manual_seed(0)
    first = nn.Sequential(nn.Conv2d(3, 6, 3), nn.ReLU(), nn.Conv2d(6, 4, 1)).eval()
    second = copy_network(first)
    with torch.no_grad():
        for parameter in (second[0].weight, second[0].bias):
            parameter.copy_(parameter.flip(0))
        second[2].weight.copy_(second[2].weight.flip(1))
    assert certify(first, second, input_size=(3, 6, 7)).identified is not None
    with torch.no_grad():
        second[2].weight[0, 0] += 0.1
    assert certify(first, second, input_size=(3, 6, 7)).verdict is not Verdict.HOLDS


def reader(own, approximate="none"):
    """A small network of ids, whose attention is torch's or its own."""

    def code(net, ids):
        x = net.embedding(ids) + net.places(torch.arange(ids.shape[1]))
        q, k, v = net.projection(x).chunk(3, -1)
        y = (q @ k.mT / 4).softmax(-1) @ v if own else F.scaled_dot_product_attention(q, k, v)
        return F.gelu(y, approximate=approximate) @ net.embedding.weight.mT

    torch.manual_seed(0)
    return Net(code, embedding=nn.Embedding(50, 16), places=nn.Embedding(9, 16), projection=nn.Linear(16, 48)).eval()


IDS = torch.tensor([[5, 17, 42, 8, 1]])


def test_a_network_of_ids_is_a_formula_of_their_embeddings():
    certificate = certify(reader(False), reader(True), images=IDS)
    assert certificate, certificate.to_text()
    assert "the embeddings of ids at these places" in certificate.claim
    second = reader(True)
    with torch.no_grad():
        second.embedding.weight[17, 0] += 0.5
    for wrong in (second, reader(True, "tanh")):
        assert certify(reader(False), wrong, images=IDS).verdict is not Verdict.HOLDS


def test_rows_of_ids_that_the_call_does_not_have_count():
    """The head is not the table, so the row of id 18 enters no number of these outputs."""
    first = nn.Sequential(nn.Embedding(50, 16), nn.GELU(), nn.Linear(16, 4))
    longer = copy.deepcopy(first)
    longer[0] = nn.Embedding(64, 16)
    with torch.no_grad():
        longer[0].weight[:50] = first[0].weight
    certificate = certify(first, longer, IDS)
    assert certificate.strength is Strength.IDENTIFIED, certificate.to_text()
    assert "all else that is computed from ids is as in this call" in certificate.claim
    for second in (copy.deepcopy(first), longer):
        with torch.no_grad():
            second[0].weight[18, 0] += 0.5
        certificate = certify(first, second, IDS)
        assert certificate.verdict is Verdict.UNDECIDED
        assert "the embeddings of ids are not the same numbers in both" in certificate.to_text(300)


def test_the_fused_kernel_is_on_again_after_comparisons_that_overlap():
    """As in two threads, of which the first to begin is the first to end."""
    first, second = without_fast_path(), without_fast_path()
    with contextlib.ExitStack() as last:
        with first:
            last.enter_context(second)
        assert not torch.backends.mha.get_fastpath_enabled()
    assert torch.backends.mha.get_fastpath_enabled()


class Projections(nn.Module):
    """Attention by one product, or by three of views of its weight."""

    def __init__(self, one, shift=0.0):
        super().__init__()
        weight = torch.randn(24, 8, generator=torch.Generator().manual_seed(0))
        self.weight, self.one = nn.Parameter(weight), one
        self.query, self.key = (nn.Parameter(weight[at : at + 8]) for at in (0, 8))
        self.value = weight[16:] + shift if shift else weight[16:]
        self.register_buffer("gain", torch.full((1, 1), 0.7).expand(5, 8))

    def forward(self, x):
        if self.one:
            parts = nn.functional.linear(x, self.weight).chunk(3, -1)
        else:
            parts = [nn.functional.linear(x, each) for each in (self.query, self.key, self.value)]
        return nn.functional.scaled_dot_product_attention(*parts) * self.gain


def test_views_of_one_weight_are_compared_and_others_refuted():
    assert certify(Projections(True), Projections(False), input_size=(5, 8)).strength is Strength.IDENTIFIED
    assert certify(Projections(True), Projections(False, shift=0.01), input_size=(5, 8)).verdict is Verdict.REFUTED
