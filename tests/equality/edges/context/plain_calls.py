"""The graph must be the plain call: code that sees the export, bounds of one image, sizes as text, threads, errors."""

import re
import threading
from itertools import product

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import conv2attn
from conv2attn.equality import certify
from conv2attn.equality.comparison import first_other, same_bits
from conv2attn.equality.context.graph import graph_of
from conv2attn.errors import UsageError
from conv2attn.verdicts import Strength, Verdict

IMAGES = torch.rand(2, 3, 8, 9, generator=torch.Generator().manual_seed(0))


class After(nn.Module):
    """A convolution, and a function of what it returns."""

    def __init__(self, function, **held):
        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(0)
            self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.function = function
        for name, thing in held.items():
            setattr(self, name, thing)

    def forward(self, image):
        return self.function(self, self.conv(image))


def swallowed(net, y):
    try:
        return y * 3 if float(y.sum()) else y
    except Exception:
        return y


def read_by_numpy(net, y):
    try:
        return -y if y.detach().numpy().max() > 1e9 else y
    except RuntimeError:  # which the export raises, whose tensors have no numbers
        return y


def counted(net, y):
    net.calls += 1
    return y * net.calls


SEEING = {
    "numbers without an operator": read_by_numpy,
    "the number of calls": counted,
    "gradients": lambda net, y: y * 2 if torch.is_grad_enabled() else y,
    "what requires them": lambda net, y: y * 2 if y.requires_grad else y,
    "the compiler": lambda net, y: y if torch.compiler.is_compiling() else y * 2,
    "the class of tensors": lambda net, y: y if type(y).__name__ == "FakeTensor" else y * 2,
    "an error of the export": swallowed,
}


@pytest.mark.parametrize("name", SEEING)
@pytest.mark.parametrize("side", [0, 1])
def test_code_that_sees_the_export_is_undecided(name, side):
    pair = [After(lambda net, y: y, calls=0).eval() for _ in range(2)]
    pair[side].function = SEEING[name]
    report = certify(pair[0], conv2attn.convert(pair[1]), images=IMAGES)
    assert report.verdict in (Verdict.UNDECIDED, Verdict.REFUTED), report.to_text()
    assert report.claim == ""


def at_this_size(net, y):
    return y if torch.compiler.is_exporting() or y.shape[2] == IMAGES.shape[2] else y * 2


def pooled_if_large(net, y):
    try:
        return F.avg_pool2d(y, 5)
    except RuntimeError:  # of maps that are smaller, which no export has
        return y


@pytest.mark.parametrize(
    ("function", "exported"),
    [(at_this_size, lambda net, y: y), (pooled_if_large, lambda net, y: F.avg_pool2d(y, 5))],
)
def test_code_that_does_something_else_for_other_sizes_is_undecided(function, exported):
    network, graph = After(function).eval(), After(exported).eval()
    for pair in ((network, conv2attn.convert(network)), (network, graph), (graph, network)):
        report = certify(*pair, images=IMAGES)
        assert report.verdict is Verdict.UNDECIDED, report.to_text()
        how = "at a second call, with gradients, " if network is pair[0] else ""  # its first one had all images
        assert re.search(rf"for 3x\d+x\d+, {how}the", report.between[0].sentence)


def profiled(net, y):
    with torch.profiler.record_function("after"):
        return y * 2


class AnyCall(nn.Module):
    """A network that passes on what it is called with, as wrappers do."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


@pytest.mark.parametrize("wrapper", [nn.Sequential, AnyCall, nn.DataParallel])
def test_profiled_code_and_wrappers_are_their_graph(wrapper):
    network = wrapper(After(profiled).eval())
    report = certify(network, conv2attn.convert(network), images=IMAGES)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()


def test_code_under_vmap_is_undecided_and_leaves_nothing_behind():
    original = After(lambda net, y: torch.vmap(torch.relu)(y)).eval()
    report = certify(original, conv2attn.convert(original), images=IMAGES)
    assert report.verdict is Verdict.UNDECIDED
    assert "its code calls torch.vmap" in report.to_text()
    assert torch._C._functorch.maybe_current_level() is None


def test_other_weights_are_refuted_where_the_code_multiplies_sizes():
    """The difference in float64 was not found: sizes were shaken as numbers are, which failed."""
    first, second = (
        After(lambda net, y: y.reshape(len(y), y.shape[1], y.shape[2] * y.shape[3])).eval() for _ in range(2)
    )
    second.conv.weight.data[0] += 1
    assert certify(first, conv2attn.convert(second), images=IMAGES).verdict is Verdict.REFUTED


UNBOUNDED = {
    "indices": lambda net, y: y.max(1).indices.float() * 8,
    "the sum over a batch, transposed": lambda net, y: y.transpose(0, 1).sum(1),
    "the sum over a batch, flattened": lambda net, y: y.flatten().sum(),
    "somebody's own relu": lambda net, y: torch.ops.plain_calls.relu(y),
}
LIBRARY = torch.library.Library("plain_calls", "DEF")
LIBRARY.define("relu(Tensor x) -> Tensor")
LIBRARY.impl("relu", lambda x: x * 3, "CompositeExplicitAutograd")
torch.library.register_fake("plain_calls::relu", torch.empty_like)


@pytest.mark.parametrize("name", UNBOUNDED)
def test_the_bound_stops_at_what_it_does_not_know(name):
    original = After(UNBOUNDED[name]).eval()
    report = certify(original, conv2attn.convert(original, alpha=20.0), images=IMAGES[:1], tolerance=1.0)
    assert report.verdict is not Verdict.HOLDS, report.to_text()
    assert report.outputs.bound is None


def test_an_operator_is_known_by_its_own_namespace():
    first, second = After(lambda net, y: y.relu()), After(lambda net, y: torch.ops.plain_calls.relu(y))
    assert certify(first.eval(), second.eval(), images=IMAGES).verdict is Verdict.REFUTED


def test_sizes_that_become_text_restrict_the_claim_to_the_images():
    def cached(net, y):
        return y * net.scales.get(f"{y.shape[2]}x{y.shape[3]}", 1.0)

    original = After(cached, scales={"8x9": 1.0}).eval()
    other = conv2attn.convert(original)
    other.scales = {"8x9": 1.0, "10x10": 5.0}
    report = certify(original, other, images=IMAGES)
    assert not report or report.claim.endswith("of sizes with height == 8 and width == 9")


def with_gradients(net, y):
    with torch.enable_grad():
        leaf = y.detach().requires_grad_()
        return torch.autograd.grad((leaf**2).sum(), leaf)[0]


ODD = {
    "a gradient": with_gradients,
    "control flow": lambda net, y: torch.ops.higher_order.wrap_with_set_grad_enabled(False, lambda x: x * 2, y),
    "eight bits": lambda net, y: y.to(torch.float8_e4m3fn),
}
UNREAD = {
    "a transform of each image": lambda net, y: torch.vmap(lambda x: x * 2)(y),
    "a transform of a sum": lambda net, y: torch.func.grad(lambda x: (x**2).sum())(y),
}


@pytest.mark.parametrize("name", ODD | UNREAD)
def test_code_of_odd_kinds_computes_itself_or_is_undecided(name):
    original = After((ODD | UNREAD)[name]).eval()
    found = certify(original, conv2attn.convert(original), images=IMAGES)
    assert found.verdict is (Verdict.HOLDS if name in ODD else Verdict.UNDECIDED), found.to_text()


CONDITIONS = {
    "height % 3": lambda y: y.shape[2] % 3,
    "height % 3 >= 1": lambda y: y.shape[2] % 3 >= 1,
    "height // 8 >= 1": lambda y: y.shape[2] // 8 >= 1,
    "height - 7 >= 1": lambda y: y.shape[2] - 7 >= 1,
    "width - height >= 0": lambda y: y.shape[3] - y.shape[2] >= 0,
    "batch - 3": lambda y: y.shape[0] - 3,
}


@pytest.mark.parametrize("name", CONDITIONS)
def test_code_that_takes_another_way_for_other_sizes_restricts_the_claim(name):
    original = After(lambda net, y: y if CONDITIONS[name](y) else -y).eval()
    assert not certify(original, After(lambda net, y: y).eval(), images=IMAGES)
    assert "of sizes with" in certify(original, conv2attn.convert(original), images=IMAGES).claim


SQUEEZES = {
    "the channels": lambda y: y.squeeze(1),
    "an axis that was added": lambda y: y.unsqueeze(1).squeeze(1),
    "the height": lambda y: y.squeeze(2),
    "the width from the end": lambda y: y.squeeze(-1),
    "channels and width": lambda y: y.squeeze((1, 3)),
    "width and channels": lambda y: y.squeeze((3, 1)),
    "all": lambda y: y.squeeze(),
    "all of two that are left": lambda y: y.sum((2, 3)).squeeze(),
    "all of one that is left": lambda y: y.sum((0, 2, 3)).squeeze(),
}


@pytest.mark.parametrize("name", SQUEEZES)
def test_a_squeeze_restricts_the_sizes_of_a_graph_exactly_where_it_removes_an_axis_at_some(name):
    network = After(lambda net, y: SQUEEZES[name](y)).eval()
    sizes = (2, 5, 6), (1, 5, 6), (2, 1, 6), (2, 5, 1)
    axes = {network(torch.zeros(batch, 3, *sides)).ndim for batch, *sides in sizes}
    assert bool(graph_of(network, IMAGES).guards) is (len(axes) > 1)


def test_kernels_wider_than_the_parts_of_images_that_are_called_again_are_proved():
    original = nn.Sequential(nn.Conv2d(2, 2, (1, 65)), nn.ReLU())
    report = certify(original, conv2attn.convert(original), images=torch.rand(1, 2, 3, 67))
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()


@pytest.mark.parametrize(
    "function", [lambda y: y.flatten(1), lambda y: y * y.shape[3] + y.shape[2], lambda y: y.mT[..., 1:]]
)
def test_sizes_are_those_of_the_image_whatever_its_name_is_in_the_code(function):
    original = After(lambda net, y: function(y)).eval()
    report = certify(original, nn.Sequential(original), images=IMAGES)
    assert (report.verdict, report.strength) == (Verdict.HOLDS, Strength.PROVED), report.to_text()


TENSORS = [
    *(torch.tensor(numbers) for numbers in ([0.0, 1.0], [-0.0, 1.0], [0.0, torch.nan], [[0.0, 1.0]], [0, 1])),
    *(torch.tensor([0.0, 1.0], dtype=dtype) for dtype in (torch.float64, torch.bfloat16, torch.float16)),
    *(torch.tensor([0x7FC00001, 0], dtype=torch.int32).view(torch.float32), torch.zeros(0), torch.zeros(0, 2)),
    *(torch.arange(4.0).reshape(2, 2), torch.arange(4.0).reshape(2, 2).t(), torch.tensor([[0.0, 2.0], [1.0, 3.0]])),
]


def in_memory(tensor):
    return tensor.dtype, tensor.shape, bytes(tensor.contiguous().flatten().view(torch.uint8).tolist())


def test_outputs_are_the_same_exactly_where_their_tensors_are_bit_for_bit():
    for a, b in product(TENSORS, TENSORS):
        same = in_memory(a) == in_memory(b)
        assert same_bits(a, b) is same_bits([TENSORS[0], a], (TENSORS[0], b)) is same, (a, b)
    assert not same_bits([TENSORS[0]] * 2, [TENSORS[0]] * 3)


@pytest.mark.parametrize(("plain", "walked"), [("abc", "abd"), ("abc", "ab"), ("a", "ab"), ("bbc", "abc"), ("", "a")])
def test_the_first_operator_that_the_graph_has_not_is_named_with_its_place(plain, walked):
    ours, theirs = ([f"aten.{each}.default (('', 2), {{}})" for each in side] for side in (plain, walked))
    place = next(at for at in range(3) if plain[at : at + 1] != walked[at : at + 1])
    sentence = first_other(ours, theirs)
    assert f" {place + 1}:" in sentence
    for side in (plain, walked):
        assert f"{side[place]}.default" in sentence if place < len(side) else "nothing" in sentence
    assert "other arguments" in first_other(["aten.add.Tensor ('', 1)"], ["aten.add.Tensor ('', 2)"])


def test_hooks_on_the_attention_of_functions_are_in_the_graph():
    class Function(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.rand(4, 3, 3, 3))

        def forward(self, image):
            return F.conv2d(image, self.weight)

    original = Function()
    other = conv2attn.convert(original, example_input=IMAGES)
    attention = next(each for each in other.modules() if isinstance(each, conv2attn.MultiHeadSelfAttention))
    attention.register_forward_hook(lambda module, args, output: output * 2)
    assert certify(original, other, images=IMAGES).verdict is Verdict.REFUTED


@pytest.mark.parametrize("wrapped", [False, True])
@pytest.mark.parametrize("flushing", [False, True])
def test_numbers_below_the_smallest_normal_count_in_threads_that_flush(wrapped, flushing):
    conv = nn.Conv2d(3, 4, 3)
    conv.bias.data.fill_(1e-39)
    other = conv2attn.convert(conv)
    other.bias.data.zero_()
    pair = [nn.Sequential(each, nn.ReLU()) if wrapped else each for each in (conv, other)]
    torch.set_flush_denormal(flushing)
    try:
        assert certify(*pair, images=IMAGES).verdict is (Verdict.UNDECIDED if wrapped else Verdict.REFUTED)
    finally:
        torch.set_flush_denormal(False)


def shared(together):
    ones = torch.ones(4, 1, 1)
    net = After(lambda net, y: (net.counter.add_(1), y * net.scale)[1]).eval()
    net.register_buffer("counter", ones)
    net.register_buffer("scale", ones if together else ones.clone())
    return net


def test_buffers_that_share_memory_are_one():
    assert certify(shared(True), shared(False), images=IMAGES).verdict is not Verdict.HOLDS
    assert certify(shared(True), shared(True), images=IMAGES).verdict is Verdict.HOLDS


def test_networks_that_plainly_differ_are_refuted_by_an_input():
    networks = []
    for seed in range(2):
        torch.manual_seed(seed)
        layers = nn.Conv2d(3, 4, 3), nn.Tanh(), nn.Flatten(), nn.Linear(4 * 6 * 7, 3)
        networks.append(nn.Sequential(*layers).eval())
    report = certify(*networks, images=IMAGES)
    assert (report.verdict, report.claim) == (Verdict.REFUTED, "")
    assert any(each.exceeds for each in report.counterexamples)


def test_certificates_are_made_in_threads():
    found = []

    def work():
        original = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU()).eval()
        found.append(certify(original, conv2attn.convert(original), images=IMAGES).verdict)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [Verdict.HOLDS] * 4
    assert not torch.compiler.is_compiling()


class Failing(After):
    """A second network that raises an error."""

    def forward(self, image):
        raise self.function


def test_only_the_networks_own_errors_refute():
    original = After(lambda net, y: y).eval()
    assert certify(original, Failing(RuntimeError("no")), images=IMAGES).verdict is Verdict.REFUTED
    with pytest.raises(UsageError, match="needs more memory"):
        certify(original, Failing(MemoryError()), images=IMAGES)
    limited = conv2attn.set_engine(conv2attn.convert(original), "dense")
    limited.conv.memory_limit = 1  # so that the attention raises an error, and not the network
    report = certify(original, limited, images=IMAGES)
    assert report.verdict is Verdict.UNSUPPORTED, report.to_text()
