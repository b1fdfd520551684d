"""What a pickle adds to a class of torch, and what a program or an ONNX model names, is refused."""

import collections
import zipfile

import onnx
import torch
from files.edges.modules import Own
from files.edges.programs import onnx_model
from files.hostile import Runs
from refusals.files import loaded
from torch import nn

from conv2attn.errors import CheckpointError
from conv2attn.files import load

LEGACY = {"_use_new_zipfile_serialization": False}


def changed(where=None, **attributes):
    """A convolution with attributes, or parts, that no constructor gave it."""
    layer = nn.Conv2d(3, 4, 3)
    (vars(layer)[where] if where else vars(layer)).update(attributes)
    return layer


def hooked():
    layer = nn.Conv2d(3, 4, 3)
    layer.register_forward_hook(nn.Identity())
    return layer


def within_itself():
    network = nn.Sequential(nn.Sequential())
    network[0].add_module("outer", network)
    return network


ADDED = {
    "0 is not a Conv2d with its attributes": lambda: nn.Sequential(changed(in_channels=99)),
    "has transposed=True": lambda: changed(transposed=True),
    "replaces the forward of Conv2d": lambda: changed(forward="text"),
    "(replaces the forward|has an attribute forward)": lambda: changed(forward=nn.Identity()),
    "replaces the _conv_forward": lambda: changed(_conv_forward=1),
    "has an attribute extra": lambda: changed(extra=[nn.Identity()]),
    "has _forward_hooks": hooked,
    "has _reversed_padding_repeated_twice=.1, 1": lambda: changed(_reversed_padding_repeated_twice=[1, 1, 1, 1]),
    "tensors have other names or sizes": lambda: changed("_parameters", more=nn.Parameter(torch.ones(1))),
    "other names or sizes": lambda: changed("_parameters", weight=nn.Parameter(torch.ones(9, 9, 3, 3))),
    "has _buffers of a wrong type": lambda: changed("_buffers", more="text"),
    "(has no attribute|has _modules of a wrong type)": lambda: changed("_modules", more=torch.ones(1)),
    "contains itself": within_itself,
    # a pickle that would make a layer of any size
    "the constructor of Conv2d is called": lambda: {"model": Runs(nn.Conv2d, 3, 4, 3)},
    "no module, directly or under a usual key": lambda: {"weight": nn.Conv2d(3, 4, 3)},
}


def other_container(**options):
    content = {"state_dict": nn.Conv2d(3, 4, 3).state_dict(), "history": collections.deque([1])}
    torch.save(content, "net.pt", **options)
    load("net.pt")


def keras():
    with zipfile.ZipFile("net.keras", "w") as archive:
        for name in ("metadata.json", "config.json", "model.weights.h5"):
            archive.writestr(name, b"{}")
    load("net.keras")


def outside(model):
    weight = onnx.helper.make_tensor("w", onnx.TensorProto.FLOAT, [1], [0.0])
    weight.data_location = onnx.TensorProto.EXTERNAL
    entry = weight.external_data.add()
    entry.key, entry.value = "location", "../../etc/passwd"
    model.graph.initializer.append(weight)


def outside_in_an_attribute(model):
    outside(model)
    weight = model.graph.initializer.pop()
    model.graph.node.append(onnx.helper.make_node("Constant", [], ["w"], value=weight))


def foreign(model):
    model.graph.node[0].domain = "some.one"


def foreign_in_a_branch(model):
    foreign(model)
    branch = onnx.helper.make_graph([model.graph.node.pop(0)], "b", [], [])
    model.graph.node.append(onnx.helper.make_node("If", ["c"], [], then_branch=branch, else_branch=branch))


def unknown(model):
    model.graph.node[0].op_type = "Nothing"


def unknown_of_two_inputs(model):
    unknown(model)
    model.graph.input.append(onnx.helper.make_tensor_value_info("z", onnx.TensorProto.FLOAT, [1]))


def in_onnx(*changes):
    """Loads of an ONNX model, changed."""

    def call(change):
        onnx_model(change)
        load("bad.onnx")

    return [lambda change=change: call(change) for change in changes]


REFUSALS = {
    CheckpointError: {
        **{f"C2A303 .*{words}": lambda make=make: loaded(make()) for words, make in ADDED.items()},
        f"it names {Own.__module__}.Own, which is code, and nothing was run": lambda: loaded(Own()),
        r"names .*deque.* torch.save\(model.state_dict\(\), path": [
            other_container,
            lambda: other_container(**LEGACY),
        ],
        "is a Keras file": keras,
        "C2A303 .*keeps 'w' in '../../etc/passwd', which is not a file in its folder": in_onnx(outside),
        "C2A303 .*which is not a file in its folder": in_onnx(outside_in_an_attribute),
        "C2A303 .*operators of 'some.one'": in_onnx(foreign, foreign_in_a_branch),
        "C2A303 .*takes 2 inputs and gives 1 outputs, and the operator Nothing is not read": in_onnx(
            unknown_of_two_inputs
        ),
        "C2A303 .*onnxruntime refuses it": in_onnx(unknown),
    }
}
