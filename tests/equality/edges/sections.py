"""Folds agree within rounding, mistakes of ports do not, and the place is the module that was changed."""

import copy
import random

import numpy
import pytest
import torch
import torch.nn.functional as F
from equality.pairs import Net
from torch import nn

from conv2attn.equality.worlds import LIMIT, compare_sections
from conv2attn.equality.worlds.followed_calls import Calls

IMAGES = (torch.randn(2, 3, 9, 7, generator=torch.Generator().manual_seed(3)),)


def written_block(net, x):
    """A convolution, a norm with statistics, an activation and a residual, as code and not as a sequence."""
    x = F.relu(net.stem(x))
    return net.head(net.activation(x + net.norm(net.conv(x))).mean((2, 3)))


def block(activation=F.gelu, eps=1e-5):
    torch.manual_seed(5)
    stem, conv, norm = nn.Conv2d(3, 6, 3), nn.Conv2d(6, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6, eps=eps)
    with torch.no_grad():
        norm.running_var.uniform_(0.4, 2)
        for numbers in (norm.running_mean, norm.weight, norm.bias):
            numbers.normal_()
    return Net(written_block, stem=stem, conv=conv, norm=norm, head=nn.Linear(6, 4), activation=activation).eval()


def folded(network):
    out = copy.deepcopy(network)
    out.conv = torch.nn.utils.fusion.fuse_conv_bn_eval(network.conv, network.norm)
    out.norm = nn.Identity()
    return out


def changed(name, change):
    network = block()
    with torch.no_grad():
        change(network.get_submodule(name))
    return network


def permuted(network):
    order, out = torch.tensor([4, 0, 5, 2, 1, 3]), copy.deepcopy(network)
    with torch.no_grad():
        for part in (out.stem, out.norm):
            for tensor in (part.weight, part.bias):
                tensor.copy_(tensor[order])
        for buffer in (out.norm.running_mean, out.norm.running_var):
            buffer.copy_(buffer[order])
        out.conv.weight.copy_(out.conv.weight[order][:, order])
        out.head.weight.copy_(out.head.weight[:, order])
    return out


SAME = {
    "a fold": lambda: folded(block()),
    "channels in another order": lambda: permuted(block()),
    "channels in another order, folded": lambda: folded(permuted(block())),
}


@pytest.mark.parametrize("name", SAME)
def test_harmless_rewrites_and_folds_agree_within_rounding(name):
    answer = compare_sections(block(), SAME[name](), IMAGES)
    assert answer.equal, answer.reason
    assert answer.units <= LIMIT
    assert answer.unit == 2.0**-24
    assert answer.arguments > 0


@pytest.mark.parametrize("size", [1.0, 1e-3])
@pytest.mark.parametrize("order", [1, -1])
def test_a_fold_needs_no_full_run_in_either_order(monkeypatch, order, size):
    """Only the network of more numbers is shaken: folded numbers, of which there are fewer, show too small a unit.

    A channel of small numbers moves by less than float32 keeps of the sum with its residual.
    """

    network = block(activation=F.relu)
    with torch.no_grad():
        network.norm.weight[2] *= size
        network.norm.bias[2] *= size
    networks = (network, folded(network))[::order]
    monkeypatch.setattr("conv2attn.equality.worlds.oracles.Oracles.looked_up", None)  # what a full run calls
    answer = compare_sections(*networks, IMAGES)
    assert answer.equal, answer.reason
    assert answer.units > 0


@pytest.mark.parametrize("order", [1, -1])
def test_a_fold_into_whole_numbers_needs_two_calls_in_either_order(monkeypatch, order):
    """Whole numbers do not move: shaking that network alone would leave no unit for the thirds of the other."""

    whole, factors = nn.Linear(6, 4, bias=False), torch.tensor([3.0, 5.0, 7.0, 9.0])
    unfolded, scale = nn.Linear(6, 4, bias=False), Net(lambda net, x: net.factors * x, factors=nn.Parameter(factors))
    with torch.no_grad():
        whole.weight.copy_(torch.arange(24.0).view(4, 6) - 11)
        unfolded.weight.copy_(whole.weight / factors[:, None])
    networks = (nn.Sequential(whole, nn.Tanh()), nn.Sequential(unfolded, scale, nn.Tanh()))[::order]
    calls, followed = [], Calls.followed_call

    def counted(*args):
        calls.append(args)
        return followed(*args)

    monkeypatch.setattr(Calls, "followed_call", counted)
    answer = compare_sections(*networks, (torch.randn(5, 6, generator=torch.Generator().manual_seed(1)),))
    assert answer.equal, answer.reason
    assert len(calls) == 2


WRITTEN_OUT = {
    F.gelu: lambda x: x * 0.5 * (1 + torch.erf(x / 2**0.5)),
    F.silu: lambda x: x * x.sigmoid(),
    F.mish: lambda x: x * F.softplus(x).tanh(),
    F.logsigmoid: lambda x: -F.softplus(-x),
    F.hardsigmoid: lambda x: (x + 3).clamp(0, 6) / 6,
    F.hardswish: lambda x: x * (x + 3).clamp(0, 6) / 6,
    (lambda x: F.glu(torch.cat([x, x.flip(1)], 1), 1)): lambda x: x * x.flip(1).sigmoid(),
    (lambda x: x.log_softmax(1)): lambda x: x - x.logsumexp(1, keepdim=True),
    F.relu: lambda x: torch.maximum(x.new_zeros(()), x),
    (lambda x: x.clamp(max=0.5)): lambda x: torch.minimum(x, torch.tensor(0.5)),
    (lambda x: F.threshold(x, 0.5, 0.5)): lambda x: x.clamp(min=0.5),
    (lambda x: x.masked_fill(x < 0, 0.5)): lambda x: torch.where(x < 0, 0.5, x),
    (lambda x: x * torch.full((1,), 1.5).clone().mul_(2)): lambda x: x * 3,
}


@pytest.mark.parametrize("activation", WRITTEN_OUT)
def test_an_activation_is_the_code_that_it_is_made_of(activation):
    written = WRITTEN_OUT[activation]
    torch.testing.assert_close(activation(IMAGES[0]), written(IMAGES[0]))
    assert compare_sections(block(activation=activation), block(activation=written), IMAGES).equal
    assert (
        compare_sections(block(activation=activation), block(activation=lambda x: written(1.001 * x)), IMAGES).equal
        is False
    )


@pytest.mark.parametrize("activation", [F.silu, F.hardswish, F.leaky_relu, F.mish])
def test_an_activation_in_place_is_the_activation(activation):
    first, second = block(activation=activation), block(activation=lambda x: activation(x, inplace=True))
    assert compare_sections(first, second, IMAGES).equal


def test_operators_of_other_libraries_have_no_rule_by_their_name():
    library = torch.library.Library("other_than_torch", "FRAGMENT")
    library.define("silu(Tensor x) -> Tensor")
    library.impl("silu", lambda x: x * torch.sigmoid(2 * x), "CompositeExplicitAutograd")
    other = block(activation=torch.ops.other_than_torch.silu)
    answer = compare_sections(block(activation=F.silu), other, IMAGES)
    assert answer.equal is None
    assert "no rule for other_than_torch::silu" in answer.reason


DIFFERENT = {
    "another epsilon": (lambda: block(eps=1e-3), "norm"),
    "a thousandth of one weight": (lambda: changed("conv", lambda m: m.weight[4, 2, 1, 0].mul_(1.001)), ""),
    "a bias left out": (lambda: changed("stem", lambda m: m.bias.zero_()), "stem"),
    "another approximation": (lambda: block(activation=lambda x: F.gelu(x, approximate="tanh")), ""),
    "a fold of another epsilon": (lambda: folded(block(eps=1.2e-5)), "conv"),
    "the last layer": (lambda: changed("head", lambda m: m.weight[1].mul_(1 + 1e-4)), "head"),
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_mistakes_part_at_the_module_that_was_changed(name):
    make, module = DIFFERENT[name]
    answer = compare_sections(block(), make(), IMAGES)
    assert answer.equal is False
    assert answer.units > LIMIT
    assert answer.place is not None
    assert answer.place.second.startswith(module)
    assert "edges/sections.py:" in answer.place.second


def test_the_place_names_the_epsilon_and_the_module_in_both():
    norms = [nn.Sequential(nn.Linear(16, 8), nn.LayerNorm(8, eps=eps), nn.Linear(8, 4)) for eps in (1e-12, 1e-6)]
    norms[1].load_state_dict(norms[0].state_dict())
    place = compare_sections(*norms, (torch.randn(5, 16),)).place
    assert (place.first, place.second) == ("1 (LayerNorm)", "1 (LayerNorm)")
    assert place.what == "its eps is 1e-06, not 1e-12"
    assert place.in_words().startswith(
        "they differ at native_layer_norm of 1 (LayerNorm): its eps is 1e-06, not 1e-12 ("
    )


def test_the_place_names_no_number_that_changes_no_output():
    first, second = block(), block(eps=1e-3)
    second.norm.momentum = 0.01  # in evaluation mode nothing depends on it
    assert compare_sections(first, second, IMAGES).place.what == "its eps is 0.001, not 1e-05"


def test_the_place_names_the_weight():
    answer = compare_sections(block(), changed("conv", lambda m: m.weight[4, 2, 1, 0].add_(0.01)), IMAGES)
    assert answer.place.what == "its weight differs most at output channel 4, input 2, tap (1, 0)"


def test_a_difference_in_few_numbers_is_not_called_another_function():
    place = compare_sections(block(), DIFFERENT["a thousandth of one weight"][0](), IMAGES).place
    assert place.operator == "erf"
    assert "arguments differ" in place.what


def test_a_last_operator_that_changes_nothing_is_the_place():
    """Without its bias the output is a tensor of the first network too, but not its output."""

    torch.manual_seed(0)
    layer, head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)
    first = Net(lambda net, x: net.head(net.layer(x)[0]), layer=layer, head=head).eval()
    second = copy.deepcopy(first)
    nn.init.zeros_(second.head.bias)
    place = compare_sections(first, second, (torch.randn(2, 5, 3),)).place
    assert place is not None
    assert place.second.startswith("head (Linear)")


def normed():
    """A norm written by hand between two layers."""

    def root_mean_square(net, x):
        return net.weight * (x * (x.square().mean(-1, keepdim=True) + 1e-5).rsqrt())

    torch.manual_seed(0)
    stem, norm = nn.Linear(6, 8), Net(root_mean_square, weight=nn.Parameter(torch.linspace(0.5, 1.5, 8)))
    return Net(lambda net, x: net.head(net.norm(net.stem(x)).tanh()), stem=stem, norm=norm, head=nn.Linear(8, 4))


NEXT = {
    "rows exchanged, which their sums do not show": ("stem", lambda m: m.weight[:2].copy_(m.weight[[1, 0]].clone())),
    "a scale left out, which leaves what it scales": ("norm", lambda m: m.weight.fill_(1)),
}


@pytest.mark.parametrize("name", NEXT)
def test_the_place_is_not_the_operator_behind_it(name):
    """Planted by leaving out what `find_place` does with idle operators, and with the order of what is read."""
    module, change = NEXT[name]
    wrong = normed()
    with torch.no_grad():
        change(wrong.get_submodule(module))
        if module == "stem":
            wrong.stem.bias[:2].copy_(wrong.stem.bias[[1, 0]].clone())
    answer = compare_sections(normed(), wrong, (torch.randn(2, 5, 6, generator=torch.Generator().manual_seed(1)),))
    assert answer.equal is False
    assert answer.place is not None
    assert answer.place.second.startswith(f"{module} (")


NO_ANSWER = {
    "depend on the numbers of its input": lambda x: x if x.sum() > 0 else x * 2,
    "a threshold with a jump": lambda x: F.threshold(x, 0.5, 0.0),
    "cast to torch.int32": lambda x: x.int().float(),
    "floor_divide rounds numbers": lambda x: torch.floor_divide(x, 2.0),
    "div rounds numbers": lambda x: torch.div(x, 2.0, rounding_mode="floor"),
    "as_strided of a tensor that is not contiguous": lambda x: x.mT.as_strided(x.shape, x.stride()),
    "a root of a negative number": torch.sqrt,
    "tanh of complex numbers": lambda x: torch.complex(x, x).tanh().real,
    "no rule for eq": lambda x: x * (x == 0),
    "the outputs do not depend on the inputs' numbers": torch.ones_like,
}


@pytest.mark.parametrize("reason", NO_ANSWER)
def test_what_shadows_cannot_follow_is_no_answer(reason):
    answer = compare_sections(NO_ANSWER[reason], NO_ANSWER[reason], IMAGES)
    assert answer.equal is None
    assert reason in answer.reason


def test_networks_without_functions_and_with_rounded_numbers_are_their_copies():
    rounded = nn.Sequential(nn.Flatten(), nn.Linear(189, 2).double().bfloat16().float(), nn.Softsign())
    for network in (nn.Flatten(0, -1), rounded):
        answer = compare_sections(network, copy.deepcopy(network), IMAGES)
        assert answer.equal, answer.reason


def test_numbers_rounded_to_half_precision_in_between_have_its_unit():
    answer = compare_sections(lambda x: x.half().float().tanh(), torch.tanh, IMAGES)
    assert (answer.equal, answer.unit) == (True, 2.0**-11)


def test_outputs_of_other_forms_or_with_other_values_are_not_equal():
    assert compare_sections(torch.tanh, lambda x: x.tanh().flatten(1), IMAGES).equal is None
    assert compare_sections(lambda x: (x.tanh(), 1), lambda x: (x.tanh(), 2), IMAGES).equal is False


def test_the_networks_and_the_generator_are_as_before():
    first, second = block().train(), block().train()
    before, state = copy.deepcopy(first.state_dict()), torch.get_rng_state()
    compare_sections(first, second, IMAGES)
    assert all(torch.equal(t, before[name]) for name, t in first.state_dict().items())
    assert torch.equal(state, torch.get_rng_state())
    assert not any(hasattr(t, "_shadow") or hasattr(t, "_made") for t in (*first.parameters(), *first.buffers()))


def test_ids_compare_the_whole_table():
    ids = (torch.tensor([[0, 3, 1], [2, 2, 0]]),)
    networks = [nn.Sequential(nn.Embedding(9, 4), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)) for _ in range(2)]
    networks[1].load_state_dict(networks[0].state_dict())
    assert compare_sections(*networks, ids).equal
    with torch.no_grad():
        networks[1][0].weight[8, 1] += 0.01  # a row that no id names
    assert compare_sections(*networks, ids).equal is False


def test_frozen_flags_of_backends_do_not_matter(monkeypatch):
    """As where a program imports torch.testing's internals: setting `torch.backends.mkldnn.enabled` then raises."""
    monkeypatch.setattr(torch.backends, "__allow_nonbracketed_mutation_flag", False)
    before = torch.backends.mkldnn.enabled
    assert compare_sections(block(), folded(block()), IMAGES).equal
    assert torch.backends.mkldnn.enabled is before


def by_function(net):
    """torch's function with the weights of a recurrent layer, which no class names."""

    def code(net, x):
        zeros = x.new_zeros(1, len(x), 4)
        return torch.lstm(x, (zeros, zeros), list(net.weights), True, 1, 0.0, False, False, True)[0]

    return Net(code, weights=nn.ParameterList(net.layer._flat_weights))


class Recurrent(nn.Module):
    """A class, since torch compiles no lambda."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, x):
        return self.layer(x)[0]


@pytest.mark.parametrize("other", [by_function, torch.jit.script], ids=["function", "script"])
def test_a_recurrence_is_followed_by_whatever_name_it_runs(other):
    """oneDNN has one operator for it, without a rule; planted by leaving oneDNN on."""
    torch.manual_seed(0)
    network, rows = Recurrent(nn.LSTM(3, 4, batch_first=True)).eval(), (torch.randn(2, 5, 3),)
    before = torch._C._get_mkldnn_enabled()
    answer = compare_sections(network, other(copy.deepcopy(network)).eval(), rows)
    assert answer.equal, answer.reason
    assert torch._C._get_mkldnn_enabled() is before
    wrong = copy.deepcopy(network)
    wrong.layer.bias_ih_l0.data[1] += 1e-3
    assert compare_sections(network, other(wrong).eval(), rows).equal is False


def test_numbers_of_an_image_of_zeros_and_ones_may_not_decide_either():
    """No mask: in worlds and in the calls that ask whether numbers change what is computed, it has other numbers."""

    class Deciding(nn.Sequential):
        def forward(self, x):
            return super().forward(x) * 2 if x.detach().numpy().sum() > 5 else super().forward(x)

    torch.manual_seed(0)
    plain, one_hot = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()), torch.zeros(2, 3, 6, 6)
    one_hot[:, 1, 2, 3] = 1
    assert compare_sections(plain, plain, (one_hot,)).equal
    assert compare_sections(plain, Deciding(*plain), (one_hot,)).equal is None


@pytest.mark.parametrize("size", [1.0, 255.0])
@pytest.mark.parametrize("most", [1e9, 100.0])
def test_the_size_of_numbers_may_not_decide(size, most):
    """Small images are called beside large ones, and large ones beside small; some networks refuse the large."""

    class Scaling(nn.Sequential):
        def forward(self, x):
            largest = abs(x.detach().numpy()).max()
            assert largest < most * size
            return super().forward(x / 255 if largest > 10 else x)

    network = Scaling(nn.Conv2d(3, 4, 3), nn.ReLU())
    answer = compare_sections(network, network, (size * IMAGES[0].clamp(-1, 1),))
    assert answer.equal is (True if (size, most) == (1.0, 100.0) else None), answer


@pytest.mark.parametrize("drawn", [random.random, lambda: float(numpy.random.rand())])
def test_what_code_draws_itself_refuses(drawn):
    """With one seed both had the same number, whatever else they drew before."""

    drawing = Net(lambda _, x: x.tanh() * drawn())
    answer = compare_sections(drawing, drawing, IMAGES)
    assert answer.equal is None
    assert "random" in answer.reason


def test_numbers_for_which_there_is_no_room_are_left_undecided(monkeypatch):
    """In the full run, which a network that parts comes to; otherwise the system ended the process."""

    def attend(net, x):
        tokens = x.flatten(2).mT
        return (tokens @ tokens.mT * net.scale).softmax(-1) @ tokens

    networks = Net(attend, scale=0.3), Net(attend, scale=0.4)
    assert compare_sections(*networks, IMAGES).equal is False
    # The scores, 2 x 63 x 63, are 31 KiB in float32, of which the quick run has 10 copies, and 62 in float64, of
    # which the full one has 30.
    monkeypatch.setattr("conv2attn.equality.worlds.all_copies.MOST_BYTES", 1 << 20)
    answer = compare_sections(*networks, IMAGES)
    assert answer.equal is None
    assert "copies of a tensor 2x63x63 take more than" in answer.reason


def test_sparse_numbers_are_left_undecided():
    sparse = Net(lambda net, x: torch.sparse.mm(net.weight, x).relu(), weight=torch.eye(4).to_sparse())
    answer = compare_sections(sparse, sparse, (torch.randn(4, 3),))
    assert answer.equal is None
    assert answer.reason


POSITIVE = (torch.rand(3, 12, generator=torch.Generator().manual_seed(1)) + 0.1,)
ROOTS = {
    "of a square": (torch.sqrt, lambda x: (x * x) ** 0.25, False),
    "squared": (lambda x: x.sqrt() ** 2, lambda x: (x * x).sqrt(), False),
    "of a product": (lambda x: x[:, :6].sqrt() * x[:, 6:].sqrt(), lambda x: (x[:, :6] * x[:, 6:]).sqrt(), False),
    "to a power with a fraction": (lambda x: x**1.5, lambda x: (x**6) ** 0.25, False),
    "one over it": (torch.rsqrt, lambda x: 1 / x.sqrt(), True),
    "of a factor": (lambda x: (4 * x) ** 0.5, lambda x: 2 * x.sqrt(), True),
}


@pytest.mark.parametrize("name", ROOTS)
def test_roots_part_from_code_that_has_numbers_where_they_have_none(name):
    """On positive inputs both return the same numbers; of negative ones the roots are NaN."""
    *pair, equal = ROOTS[name]
    assert compare_sections(*pair, POSITIVE).equal is equal


FACTORS = torch.ones(4000)
OTHERS = FACTORS.index_fill(0, torch.tensor([3990]), 2.0)
SMALL = {
    "a product of many": (lambda x: (x * FACTORS).prod(1), lambda x: (x * OTHERS).prod(1)),
    "products of products": (lambda x: (x * 1e-20) ** 20 * x, lambda x: (x * 2e-20) ** 20 * x),
    "a power, which float32 cannot store": (lambda x: (x * 1e-9) ** 8, lambda x: (x * 2e-9) ** 8),
    "a square in place": (lambda x: (x * 1e-200).square_() * x, lambda x: (x * 2e-200).square_() * x),
    "arguments of a function": (lambda x: (x * 1e-18).sigmoid(), lambda x: (x * 2e-18).sigmoid()),
}


@pytest.mark.parametrize("name", SMALL)
def test_numbers_that_are_all_small_are_not_taken_for_rounding(name):
    """Their differences may vanish in the numbers of a network, so that its own outputs are the same."""
    assert compare_sections(*SMALL[name], (torch.rand(2, 4000) + 0.3,)).equal is not True


IN_FLOAT64 = {
    "a bound": (lambda x: x.clamp(max=6.0), lambda x: x.clamp(max=6.0 + 1e-8)),
    "a slope": (lambda x: F.leaky_relu(x, 0.01), lambda x: F.leaky_relu(x, 0.01 + 1e-10)),
    "a softplus, which torch cuts at 20": (F.logsigmoid, lambda x: -F.softplus(-x)),
}


@pytest.mark.parametrize("name", IN_FLOAT64)
def test_what_float32_does_not_see_parts_networks_of_float64(name):
    (numbers,) = POSITIVE
    assert compare_sections(*IN_FLOAT64[name], (numbers,)).equal is True
    assert compare_sections(*IN_FLOAT64[name], (numbers.double(),)).equal is False


def test_the_unit_of_a_network_of_float64_is_that_of_the_float32_within():
    (numbers,), layer = POSITIVE, nn.Linear(12, 3).double()
    answer = compare_sections(layer, layer, (numbers.double(),))
    assert (answer.equal, answer.unit) == (True, 2.0**-53)
    answer = compare_sections(layer, lambda x: layer(x.float().double()), (numbers.double(),))
    assert (answer.equal, answer.unit) == (True, 2.0**-24)
