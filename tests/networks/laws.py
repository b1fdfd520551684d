"""Laws of the conversion of every network: its map, its other modules, and its row on each convolution."""

import copy
import io
import pickle

import pytest
import torch
from networks.cases import CASES, Case
from torch import nn
from torch.nn.utils.parametrize import is_parametrized
from torch.optim.swa_utils import AveragedModel
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map_only
from whole import whole

from conv2attn import MultiHeadSelfAttention, conversion_of, convert, set_engine
from conv2attn.layers.theorem import STOCK
from conv2attn.networks import attention_layers, copy_network

pytestmark = pytest.mark.filterwarnings("ignore:C2A109 no convolution of")
WAYS = {"seen": (True, False), "seen in training": (True, True), "unseen": (False, False)}


def called(network: nn.Module, inputs) -> list[torch.Tensor]:
    """The tensors that `network` returns for an input of a case."""
    result = network(**inputs) if isinstance(inputs, dict) else network(inputs)
    return [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]


def converted(case: Case, model: nn.Module, seen: bool) -> nn.Module:
    """The conversion of the case's network, with its first input as the example or with none."""
    return convert(model, example_input=case.inputs[0] if seen else None)


def assert_same(case: Case, model: nn.Module, network: nn.Module) -> None:
    """Every engine gives the original's outputs, bit for bit, on every input."""
    for inputs in case.inputs:
        expected = [tensor.detach() for tensor in called(model, inputs)]
        assert max(tensor.abs().max() for tensor in expected) > 0
        for engine in case.engines if attention_layers(network) else ():
            set_engine(network, engine)
            for place, (result, right) in enumerate(zip(called(network, inputs), expected, strict=True)):
                assert result.dtype == right.dtype
                assert torch.equal(result, right), f"output {place} by {engine}"
    if attention_layers(network):
        set_engine(network, "auto")


def computes_the_same(case, model, network, seen):
    assert_same(case, model.eval(), network.eval())


def tells_each_convolution_once(case, model, network, seen):
    rows = conversion_of(network).rows
    names = [row.name for row in rows]
    expected = {name for name, module in model.named_modules() if isinstance(module, STOCK)}
    expected -= {name.partition(":")[0].replace("(root)", "") for name in case.calls} if seen else set()
    expected |= case.calls if seen else set()
    assert set(names) == expected
    assert len([name for name in names if ":" not in name]) == len({name for name in names if ":" not in name})
    assert {row.name for row in rows if row.outcome != "converted"} == (case.left if seen else case.left_unseen)
    assert all("C2A106" in row.reason for row in conversion_of(network).remaining)
    if seen:
        assert len(native_calls(network, case.inputs[0])) == len(case.left)


def keeps_everything_but_the_convolutions(case, model, network, seen):
    ours = {name: module for name, module in network.named_modules() if ".encoding" not in f".{name}"}
    assert [name for name in ours if "attending_calls" not in name] == [name for name, _ in model.named_modules()]
    outcomes = {row.name: row for row in conversion_of(network).rows}
    for name, module in model.named_modules():
        replaced = name in outcomes and outcomes[name].outcome == "converted"
        assert ours[name].training == module.training
        assert isinstance(ours[name], MultiHeadSelfAttention if replaced else type(module))
        assert is_parametrized(ours[name]) == is_parametrized(module)
        tensors = dict(module.named_buffers(recurse=False)) | dict(module.named_parameters(recurse=False))
        for key, tensor in tensors.items():
            mine = getattr(ours[name], key)
            assert torch.equal(mine, tensor)
            assert mine.requires_grad == tensor.requires_grad
            assert mine.data_ptr() != tensor.data_ptr()
            assert (key in ours[name]._non_persistent_buffers_set) == (key in module._non_persistent_buffers_set)


def leaves_the_original_alone(case, model, network, seen):
    state = copy.deepcopy(model.state_dict())
    before = {module: (module.training, set(vars(module)), len(module._forward_hooks)) for module in model.modules()}
    random_numbers = torch.get_rng_state()
    converted(case, model, seen)
    assert torch.equal(torch.get_rng_state(), random_numbers)
    for module, (training, names, hooks) in before.items():
        assert (module.training, set(vars(module)), len(module._forward_hooks)) == (training, names, hooks)
    assert set(model.modules()) == before.keys()
    assert not attention_layers(model)
    assert all(parameter.grad is None for parameter in model.parameters())
    for key, tensor in model.state_dict().items():
        assert torch.equal(tensor, state[key])


def has_the_same_gradients(case, model, network, seen):
    for module in (model.eval(), network.eval()):
        total = sum(tensor.sum() for tensor in called(module, case.inputs[0]))
        if total.requires_grad:
            total.backward()
    ours = dict(network.named_parameters())
    for name, parameter in model.named_parameters():
        if name in ours and not (parameter.grad is None and ours[name].grad is None):
            torch.testing.assert_close(ours[name].grad, parameter.grad)
    assert not [name for name, _ in network.named_parameters() if "encoding" in name]


def lives_on_in_copies(case, model, network, seen):
    def stored(network):
        torch.save(network, file := io.BytesIO())
        return torch.load(io.BytesIO(file.getvalue()), weights_only=False)

    keys = list(network.state_dict())
    for layer in attention_layers(network).values():
        layer.engine = case.engines[-1]
    before = called(network, case.inputs[-1])
    for again in (copy.deepcopy, lambda network: pickle.loads(pickle.dumps(network)), stored):
        try:
            again(model)
        except RuntimeError:  # torch copies or pickles no computed weights
            continue
        twin = again(network)
        assert conversion_of(twin) == conversion_of(network)
        assert {layer.engine for layer in attention_layers(twin).values()} <= {case.engines[-1]}
        assert list(twin.state_dict()) == keys
        assert_same(case, model.eval(), twin.eval())
        assert not {*twin.modules()} & {*network.modules()}
        assert not {p.data_ptr() for p in twin.parameters()} & {p.data_ptr() for p in network.parameters()}
        whole(twin, seed=9)
        after, other = called(network, case.inputs[-1]), called(twin, case.inputs[-1])
        assert all(torch.equal(one, same) for one, same in zip(before, after, strict=True))
        assert not all(torch.equal(one, same) for one, same in zip(before, other, strict=True))


def loads_the_state_of_another_conversion(case, model, network, seen):
    keys = list(network.eval().state_dict())
    called(network, case.inputs[-1])
    assert list(network.state_dict()) == keys
    other = converted(case, whole(case.build(), seed=4), seen)
    other.load_state_dict(network.state_dict())
    assert_same(case, model.eval(), other.eval())


def has_the_state_of_the_original(case, model, network, seen):
    ours, theirs = network.state_dict(), model.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[key], theirs[key]) for key in theirs)
    assert [name for name, _ in network.named_parameters()] == [name for name, _ in model.named_parameters()]


def exchanges_its_state_after_training(case, model, network, seen):
    """Weights, the moments of an optimiser by index, and an average go from one to the other, and back, strictly."""
    if not any(parameter.requires_grad for parameter in model.parameters()):
        return
    optimisers = {each: torch.optim.Adam(each.parameters(), lr=0.01) for each in (model, network)}
    average = AveragedModel(copy_network(network))
    for first, second in ((network, model), (model, network)):
        for _ in range(3):
            optimisers[first].zero_grad()
            sum(tensor.sum() for tensor in called(first, case.inputs[0])).backward()
            optimisers[first].step()
        second.load_state_dict(first.state_dict())
        optimisers[second].load_state_dict(optimisers[first].state_dict())
        average.update_parameters(network)
        assert all(torch.equal(tensor, second.state_dict()[key]) for key, tensor in first.state_dict().items())
    model.load_state_dict(average.module.state_dict())


def converts_no_further(case, model, network, seen):
    if seen:
        again = converted(case, network, seen)
        assert {row.name for row in conversion_of(again).rows} == case.left
        assert list(attention_layers(again)) == list(attention_layers(network))
        assert_same(case, model.eval(), again.eval())


OF_MODES = [
    computes_the_same,
    has_the_state_of_the_original,
    tells_each_convolution_once,
    keeps_everything_but_the_convolutions,
    leaves_the_original_alone,
]
OF_EVALUATION = [
    has_the_same_gradients,
    lives_on_in_copies,
    loads_the_state_of_another_conversion,
    exchanges_its_state_after_training,
    converts_no_further,
]
"""Laws that put both networks into evaluation mode first."""
LAWS = [(law, way) for way in WAYS for law in OF_MODES] + [
    (law, way) for way in ("seen", "unseen") for law in OF_EVALUATION
]


class Native(TorchFunctionMode):
    """Notes the functional convolutions that reach torch."""

    def __init__(self):
        super().__init__()
        self.attention: list[str] = []

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func.__name__.startswith(("conv1d", "conv2d", "conv3d", "conv_transpose")):
            self.attention.append(func.__name__)
        return func(*args, **(kwargs or {}))


def native_calls(network: nn.Module, inputs) -> list[str]:
    """The functional convolutions that a run of `network` leaves to torch."""
    native = Native()
    with native, torch.no_grad():
        called(network, inputs)
    return sorted(native.attention)


@pytest.mark.rotated
@pytest.mark.parametrize(("law", "way"), LAWS, ids=lambda each: getattr(each, "__name__", each))
@pytest.mark.parametrize("name", CASES)
def test_law(name, way, law):
    case, (seen, training) = CASES[name], WAYS[way]
    if not seen and case.left_unseen == {"(error)"}:
        return
    model = case.build().train(training)
    law(case, model, converted(case, model, seen), seen)


def test_the_laws_see_a_wrong_conversion():
    """Planted: a tap changed, a hook lost, a mode changed, a convolution left to torch."""
    for name, spoil, law in (
        ("plain", lambda network: network[0][0].weight.data.mul_(2), computes_the_same),
        ("hooks that change", lambda network: network[1]._forward_hooks.clear(), computes_the_same),
        ("blocks", lambda network: network[1].train(), keeps_everything_but_the_convolutions),
        ("calls", lambda network: vars(network).pop("forward"), tells_each_convolution_once),
        ("parts", lambda network: vars(network[0][0])["_buffers"].pop("cache"), keeps_everything_but_the_convolutions),
        ("tied", lambda network: network[2][0].weight.requires_grad_(False), has_the_same_gradients),
        ("plain", lambda network: network[0][0].encoding.learn(), has_the_state_of_the_original),
        ("plain", lambda network: network[0][0].hold(network[0][0].weights), exchanges_its_state_after_training),
    ):
        case = CASES[name]
        model = case.build().eval()
        network = converted(case, model, True)
        spoil(network)
        with pytest.raises((AssertionError, AttributeError, RuntimeError)):
            law(case, model, network, True)


@pytest.mark.parametrize("inside", [False, True], ids=["plain weights", "weights of inference mode"])
def test_what_is_converted_under_inference_mode_trains_afterwards(inside):
    network = nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 2, 1))
    image = torch.randn(2, 2, 5, 6)
    with torch.inference_mode():
        network = copy.deepcopy(network) if inside else network
        converted = convert(network, example_input=image.clone())
    converted(image).square().sum().backward()
    torch.optim.SGD(converted.parameters(), lr=0.1).step()
    assert all(parameter.grad is not None for parameter in converted.parameters())


@pytest.mark.rotated
@pytest.mark.parametrize("name", sorted({*CASES} - {"own forwards"}))  # which holds a tensor that no .to moves
def test_a_network_converted_on_a_device_computes_the_same_there(name, device):
    case = CASES[name]
    model, moved = (
        case.build().eval().to(device),
        tree_map_only(torch.Tensor, lambda each: each.to(device), case.inputs),
    )
    network = convert(model, example_input=moved[0])
    for inputs in moved:
        for result, right in zip(called(network, inputs), called(model, inputs), strict=True):
            assert result.device == right.device
            assert torch.equal(result.cpu(), right.cpu())
