"""All errors for users: one base class, one code per rule, one sentence that says what to do."""

import re
from dataclasses import dataclass
from operator import index
from typing import SupportsFloat, SupportsIndex, cast, final

SIZE_TEXT = re.compile(r"\b\d+(?:x\d+)+\b")
"""A size in the form of the command line, 3x224x224."""
OPTION = re.compile(r"--([a-z][a-z-]*[a-z])")
"""An option of the command line, in the advice of an error."""
ARGUMENTS = {"inputs": "example_input", "run": "runs"}
"""Python arguments whose option has another name."""


class Conv2AttnError(Exception):
    """A rule was broken. Shown as `CODE what was found. What to do.`

    Advice names arguments as options of the command line, `--input-size`, which Python shows as `input_size`, and
    `--inputs` as `example_input`.

    Args:
        code: a key of `ERROR_RULES`.
        found: what was found and where, with the user's own names and numbers.
        remedy: what to do about it, a sentence or two.
    """

    exit_code = 2

    def __init__(self, code: str, found: str, remedy: str):
        self.code, self.found, self.remedy = code, found, remedy
        super().__init__(f"{code} {found.rstrip('.')}. {in_python(remedy)}")

    def __reduce__(self) -> tuple[type["Conv2AttnError"], tuple[str, str, str]]:
        return type(self), (self.code, self.found, self.remedy)


class Conv2AttnWarning(UserWarning):
    """A warning about a result. Shown as `CODE what was found. What to do.`"""

    def __init__(self, code: str, found: str, remedy: str):
        self.code = code
        super().__init__(f"{code} {found}. {in_python(remedy)}")


def first_line(error: BaseException) -> str:
    """The first line of an error's message, or its class if the message is empty."""
    return next(iter(str(error).splitlines()), "") or type(error).__name__


def in_python(advice: str) -> str:
    """Advice with arguments and sizes in Python's form; commands to type are unchanged."""
    if "conv2attn " in advice:
        return advice
    named = OPTION.sub(lambda option: ARGUMENTS.get(option[1], option[1].replace("-", "_")), advice)
    return SIZE_TEXT.sub(lambda size: f"({size[0].replace('x', ', ')})", named)


class UsageError(Conv2AttnError, ValueError):
    """The call itself is wrong: an argument, a shape, a file."""


class UnsupportedError(Conv2AttnError):
    """The question is meaningful, but this project does not answer it."""

    exit_code = 3


class InputError(UsageError, RuntimeError):
    """An input that a layer does not accept; also a RuntimeError, as torch's convolutions raise."""


class GeometryError(InputError):
    """Sides, paddings, strides or offsets that do not fit together."""


class AlphaError(UsageError):
    """A sharpness that is not a positive finite number."""


class HeadSizeError(UsageError):
    """Heads too few or too narrow for the convolution."""


class EngineError(UnsupportedError):
    """An engine that is not exact for the layer's present parameters."""


class CheckpointError(UsageError):
    """A file that is missing, damaged, of another kind, or in the way."""


@final
@dataclass(frozen=True)
class ErrorRule:
    """The meaning of a code, for `conv2attn explain CODE`.

    `example` is a call that raises it: `>>>` is Python, where torch, nn and conv2attn are imported; `$` is a command.
    """

    title: str
    why: str
    example: str
    remedy: str


ERROR_RULES: dict[str, ErrorRule] = {
    "C2A001": ErrorRule(
        "argument out of range",
        "A number is smaller, larger or less exact than the call allows.",
        "$ conv2attn convert resnet18.pt --input-range -1",
        "Pass a number within these limits.",
    ),
    "C2A002": ErrorRule(
        "unknown name",
        "The call takes one of a fixed set of names, such as those of engines, and got another one.",
        '>>> conv2attn.convert(nn.Conv2d(3, 4, 3), encoding="sine")',
        "Pass one of the listed names.",
    ),
    "C2A003": ErrorRule(
        "package not installed",
        "Some calls use a package that does not come with conv2attn.",
        "$ conv2attn convert resnet18.pt --arch monai:unet",
        "Install it with pip.",
    ),
    "C2A004": ErrorRule(
        "arguments contradict each other",
        "Two arguments exclude each other, or one has no effect without the other.",
        ">>> conv2attn.certify(nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3), example_input=(3, 8, 8), input_size=(3, 8, 8))",
        "Pass one of them, or both where one needs the other.",
    ),
    "C2A005": ErrorRule(
        "image size unknown",
        "Neither the call nor the network states the size of the images.",
        ">>> conv2attn.certify(nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3))",
        "Pass --input-size, such as 3x224x224, or --inputs.",
    ),
    "C2A006": ErrorRule(
        "argument not understood",
        "A text cannot be read as what the option takes, or an object is of another type.",
        "$ conv2attn verify resnet18.pt resnet18.pt --input-size 3,224,224",
        "Pass it in the form given in the message.",
    ),
    "C2A007": ErrorRule(
        "sizes do not agree",
        "Two sizes must fit each other: one number for each axis or channel, groups that divide channels.",
        ">>> conv2attn.BasisConvolution(4, 6, terms=1, groups=3)",
        "Pass as many numbers as there are axes or channels, and sizes that divide each other.",
    ),
    "C2A008": ErrorRule(
        "nothing to work on",
        "The network has no layer of the kind that the call works on, or none of this name.",
        '>>> conv2attn.set_engine(nn.Linear(3, 4), "conv")',
        "List the layers with conv2attn inspect, and pass a network that has one.",
    ),
    "C2A009": ErrorRule(
        "network fails",
        "The network, or the function that builds it, raises an error on its arguments.",
        "$ conv2attn verify resnet18.pt resnet18.pt --input-size 5x224x224",
        "Pass images that the network takes, and arguments that its class takes.",
    ),
    "C2A010": ErrorRule(
        "torch is compiling",
        "torch.export and torch.compile keep state in the process. While it is set, networks run differently, and "
        "their results prove nothing about later calls.",
        (
            ">>> conv = nn.Conv2d(3, 4, 3); "
            "conv.register_forward_hook(lambda *_: conv2attn.certify(conv, conv, input_size=(3, 9, 9))); "
            "torch.export.export(conv, (torch.zeros(1, 3, 9, 9),), strict=False)"
        ),
        "Call it outside torch.compile and torch.export, or in a new process.",
    ),
    "C2A101": ErrorRule(
        "not a convolution",
        "Only layers of torch.nn.Conv1d, Conv2d, Conv3d and their transposed forms are read, and only with "
        "torch's own forward.",
        "$ conv2attn convert layer.pt -o twice.pt",
        "Pass such a layer, or a whole model with an example_input, so that the convolutions in its forward are found.",
    ),
    "C2A102": ErrorRule(
        "dtype without a softmax",
        "Attention needs exp and an order: complex numbers have no order, quantised and integer ones no exp.",
        ">>> conv2attn.convert(nn.Conv2d(3, 4, 3, dtype=torch.complex64))",
        "Dequantise or cast the layer to float64, float32, bfloat16 or float16 first.",
    ),
    "C2A103": ErrorRule(
        "lazy layer not initialised",
        "A lazy layer has no weights, hence no taps, until it has seen an input.",
        ">>> conv2attn.convert(nn.LazyConv2d(4, 3))",
        "Run the model once on an input, or pass example_input.",
    ),
    "C2A104": ErrorRule(
        "unknown padding mode",
        "Padding must be a linear map before the keys. Four modes are known: zeros, reflect, replicate and circular.",
        '>>> conv = nn.Conv2d(3, 4, 3); conv.padding_mode = "mirror"; conv2attn.convert(conv)',
        "Set padding_mode to zeros, reflect, replicate or circular, or leave the layer unconverted with --skip.",
    ),
    "C2A105": ErrorRule(
        "head size too small",
        "Theorem 1 expresses min(D_h, D_out) output channels; for independent heads d_head >= rank of every tap is "
        "necessary and sufficient, so min(d_in, d_out) always serves.",
        ">>> conv2attn.convert(nn.Conv2d(8, 8, 3), d_head=2)",
        "Leave d_head unset, or raise it.",
    ),
    "C2A106": ErrorRule(
        "forward of its own",
        "A subclass with its own forward may pad, standardise or mask, so its attributes do not define its function. "
        "A layer stays a convolution if it has an attribute of a name that attention needs, or computes a weight that "
        "would be replaced. Copies are converted and run; a network with objects that Python cannot copy is refused.",
        (
            '>>> scaled = type("Scaled", (nn.Conv2d,), {"forward": lambda self, x: 2 * x}); '
            "conv2attn.convert(scaled(3, 4, 3))"
        ),
        "Pass example_input, so that the convolution in its forward is found and converted.",
    ),
    "C2A107": ErrorRule(
        "functional convolution not converted",
        "torch.nn.functional.conv*d was called outside a convolution layer and could not be replaced.",
        (
            ">>> net = nn.Identity(); "
            "net.register_forward_hook(lambda net, args, y: nn.functional.conv2d(y, torch.ones(1, 3, 1, 1))); "
            "print(conv2attn.conversion_of(conv2attn.convert(net, torch.ones(1, 3, 9, 9))).rows)"
        ),
        "Wrap the call in an nn.Conv layer.",
    ),
    "C2A108": ErrorRule(
        "network needs the convolution itself",
        "The network's own code reads an attribute of a converted layer that only torch's convolutions have.",
        (
            '>>> net = type("Net", (nn.Sequential,), '
            '{"forward": lambda self, x: self[0]._conv_forward(x, self[0].weight, None)})(nn.Conv2d(3, 3, 1)); '
            "conv2attn.convert(net, torch.ones(1, 3, 9, 9))"
        ),
        "Leave that layer unconverted with skip.",
    ),
    "C2A109": ErrorRule(
        "no convolution",
        "Nothing was replaced: the module has no torch.nn.Conv layer, and calls no convolution that could be traced.",
        ">>> conv2attn.convert(nn.Linear(3, 4))",
        "Pass a model with convolutions, and example_input if it calls them as functions.",
    ),
    "C2A110": ErrorRule(
        "no rule for this operator",
        "The operation has no rule for operators of this type.",
        ">>> from conv2attn.theory.basis import as_matrix; as_matrix(nn.ReLU(), (5, 5))",
        "Register a rule, or pass the operator as Dense.",
    ),
    "C2A120": ErrorRule(
        "input does not fit the layer",
        "The input has another number of channels or axes than the layer.",
        ">>> conv2attn.convert(nn.Conv2d(3, 4, 3))(torch.ones(1, 5, 9, 9))",
        "Pass (batch, channels, *sides), or (channels, *sides) for a single image.",
    ),
    "C2A121": ErrorRule(
        "grid too small",
        "The padded grid is smaller than the dilated kernel, or a padding needs more pixels than the image has.",
        ">>> conv2attn.convert(nn.Conv2d(3, 4, 7))(torch.ones(1, 3, 5, 5))",
        "Pass a larger input or less padding.",
    ),
    "C2A122": ErrorRule(
        "structure does not fit",
        "The tokens, terms or edges of a structure are not those that the operation needs.",
        (
            ">>> from conv2attn.theory.basis import Shift; "
            "conv2attn.BasisConvolution(3, 4, terms=2)(torch.ones(1, 3, 9, 9), Shift(((0, 0),)))"
        ),
        "Count the nodes, edges and terms of the structure; node indices start at 0.",
    ),
    "C2A130": ErrorRule(
        "alpha out of range",
        "alpha is the sharpness of a head in inverse squared pixels: positive and finite.",
        ">>> conv2attn.convert(nn.Conv2d(3, 4, 3), alpha=-1)",
        'Pass a positive number, or "auto".',
    ),
    "C2A131": ErrorRule(
        "alpha leaks",
        "At a small alpha a head leaks: a part of its attention goes to other keys than its target. The "
        "warning comes below 46, the value in the paper.",
        ">>> print(conv2attn.conversion_of(conv2attn.convert(nn.Sequential(nn.Conv2d(3, 4, 3)), alpha=20)).rows)",
        'Pass alpha="auto" for exactly one-hot attention.',
    ),
    "C2A132": ErrorRule(
        "positions do not learn",
        "A head's centre and sharpness get their gradients through the attention that leaks, which is about "
        "exp(-alpha). The gradients are exactly 0 at alpha=128, 1e-20 at 46, 1e-9 at 20, 1e-5 at 10 and 7e-4 "
        "at 5.",
        ">>> conv2attn.convert(nn.Conv2d(3, 4, 3), trainable=True)",
        "Pass a smaller alpha, such as alpha=5, at which they move; the attention leaks then.",
    ),
    "C2A201": ErrorRule(
        "engine not exact for this layer",
        "An engine is an order of evaluation. Each is exact for some layers only, which is decided from the "
        "present parameters.",
        ('>>> conv2attn.set_engine(conv2attn.convert(nn.Conv2d(3, 4, 3), alpha=5), "conv")(torch.ones(1, 3, 9, 9))'),
        "Take the engine auto or dense, which are exact for all, by --engine or set_engine.",
    ),
    "C2A202": ErrorRule(
        "not enough memory",
        "The call needs more memory than its limit, or than there is: attention scores one query against all keys.",
        (
            '>>> conv2attn.set_engine(conv2attn.convert(nn.Conv2d(3, 4, 3), alpha=5), "dense", '
            "memory_limit=100)(torch.ones(1, 3, 99, 99))"
        ),
        "Raise memory_limit, or use an engine that does not compare all pairs.",
    ),
    "C2A203": ErrorRule(
        "engine not decided before tracing",
        "An engine is decided from the values of centres and sharpness, which a traced graph cannot read.",
        (
            ">>> net = nn.Identity(); net.forward = lambda x: nn.functional.conv2d(x, x[:1]); "
            "torch.export.export(conv2attn.convert(net, torch.ones(1, 3, 9, 9)), (torch.ones(1, 3, 6, 6),))"
        ),
        "Call the layer once on an image of this dtype and device before you compile or export it.",
    ),
    "C2A301": ErrorRule("file missing", "The path names no file.", "$ conv2attn convert missing.pt", "Check the path."),
    "C2A302": ErrorRule(
        "file damaged",
        "The file is empty, truncated, or its stored checksum does not match its contents.",
        "$ conv2attn convert empty.pt",
        "Copy or download it again.",
    ),
    "C2A303": ErrorRule(
        "file of another kind",
        "Files that can be read are state dicts, pickled modules of known classes, safetensors, torch.export "
        "and ONNX programs, and Hugging Face folders. Reading executes nothing in a file.",
        "$ conv2attn verify resnet18.pt notes.txt",
        "Save the model with torch.save(model.state_dict(), path).",
    ),
    "C2A304": ErrorRule(
        "architecture not recognised",
        "The keys and shapes of the state dict do not fit a supported architecture.",
        "$ conv2attn convert other.pt",
        "Name the architecture with --arch, or build the model in Python and call conv2attn.convert(model).",
    ),
    "C2A305": ErrorRule(
        "file exists",
        "Existing files are not overwritten unless you ask for it.",
        "$ conv2attn convert resnet18.pt -o attention.pt",
        "Choose another name, or pass --force.",
    ),
    "C2A306": ErrorRule(
        "model cannot be rebuilt from a file",
        "A file holds tensors and plain numbers, never code, so only supported architectures can be rebuilt from one.",
        '>>> conv2attn.save(nn.Sequential(nn.Tanh()), "net.pt")',
        "Save network.state_dict() with torch.save, and rebuild the network in Python.",
    ),
    "C2A307": ErrorRule(
        "file too large",
        "Sizes are capped before anything is read, so that a file cannot exhaust the memory.",
        "$ conv2attn convert resnet18.pt --max-size 0.001",
        "Raise --max-size, in GiB, if the file is meant to be so large.",
    ),
    "C2A308": ErrorRule(
        "unknown suffix",
        "The suffix chooses the format of a file, and this suffix is not known.",
        "$ conv2attn convert resnet18.pt -o net.bin",
        "Name the file .pt, .safetensors, .pt2 or .onnx.",
    ),
    "C2A309": ErrorRule(
        "network not exported",
        "Every exported program is run from its file and compared with the network. A file that differs is not kept.",
        (
            ">>> net = nn.Sequential(conv2attn.convert(nn.Conv2d(3, 4, 3)), nn.AdaptiveMaxPool2d(2, True)); "
            'conv2attn.save(net, "net.onnx", example_input=(3, 9, 9))'
        ),
        "Save it as .pt, or export the part that returns one tensor, with another --engine.",
    ),
    "C2A401": ErrorRule(
        "geometry differs",
        "At some input size the heads do not read the pixels that the taps of the convolution read.",
        ">>> print(conv2attn.certify(nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3, padding=1), input_size=(3, 9, 9)))",
        "Convert again.",
    ),
    "C2A310": ErrorRule(
        "saved in a form that loses attention",
        "save_pretrained stores weights and a config, from which from_pretrained builds the original class, with its "
        "convolutions and without the attention.",
        (
            '>>> net = type("Net", (nn.Sequential,), {"save_pretrained": lambda self, folder: None})'
            '(nn.Conv2d(3, 4, 3)); conv2attn.convert(net).save_pretrained("folder")'
        ),
        "Use conv2attn.save(network, path) and conv2attn.load(path).",
    ),
    "C2A402": ErrorRule(
        "weights differ",
        "A product W_val W_out is not exactly the matrix of its tap, or the biases differ.",
        ">>> print(conv2attn.certify(nn.Conv2d(3, 4, 3), nn.Conv2d(3, 4, 3), input_size=(3, 9, 9)))",
        "Convert again.",
    ),
    "C2A403": ErrorRule(
        "attention leaks",
        "A head puts more attention off its target than the unit roundoff of the dtype.",
        (
            ">>> conv = nn.Conv2d(3, 4, 3); "
            "print(conv2attn.certify(conv, conv2attn.convert(conv, alpha=3), input_size=(3, 9, 9)))"
        ),
        "Raise alpha, or convert again with --alpha auto.",
    ),
    "C2A404": ErrorRule(
        "measured difference",
        "The measured difference exceeds its bound, no bound is known, or the original is not finite on the input.",
        (
            ">>> conv = nn.Conv2d(3, 4, 3); conv.weight.data.fill_(3e38); "
            "print(conv2attn.certify(conv, conv, input_size=(3, 9, 9)))"
        ),
        "Keep the input with --save-input if there is one; where the original overflows, lower --input-range.",
    ),
    "C2A405": ErrorRule(
        "structure differs",
        "Between the convolutions the networks are not the same objects of the same code.",
        (
            ">>> conv = nn.Conv2d(3, 4, 3); "
            "print(conv2attn.certify(nn.Sequential(conv, nn.ReLU()), nn.Sequential(conv, nn.Tanh()), "
            "input_size=(3, 9, 9)).to_text(verbose=True))"
        ),
        "Convert again, and change nothing else in the network.",
    ),
    "C2A407": ErrorRule(
        "outputs differ in kind",
        "An output is missing, empty, not finite, or of another shape or dtype.",
        (
            ">>> conv = nn.Conv2d(3, 4, 3); "
            "print(conv2attn.certify(nn.Sequential(conv), nn.Sequential(conv, nn.Flatten()), input_size=(3, 9, 9)))"
        ),
        "Return the same outputs from the second network as from the first, under the same keys.",
    ),
    "C2A409": ErrorRule(
        "formulas not known to be equal",
        "Over finite fields both networks return different values, or an operator has no rule. This refutes nothing.",
        (
            ">>> Most = type('Most', (nn.Module,), {'forward': lambda self, image: image.cummax(-1).values}); "
            "print(conv2attn.certify(Most(), nn.Sequential(Most()), input_size=(3, 9, 9)))"
        ),
        "Write both networks with the same operators, or compare their numbers on more images with --inputs.",
    ),
    "C2A410": ErrorRule(
        "other numbers",
        "On the same inputs the networks return different numbers, or only such runs can compare them.",
        (
            ">>> conv = nn.Conv2d(3, 4, 3); "
            "print(conv2attn.certify(nn.Sequential(conv, nn.ReLU()), nn.Sequential(conv, nn.LeakyReLU(0.5)), "
            "input_size=(3, 9, 9)))"
        ),
        "Beyond rounding, the networks differ. Within it, compare the weights: folding or casting rounds them once.",
    ),
    "C2A411": ErrorRule(
        "sections not known to be equal",
        "Between nonlinear functions the networks differ by more than rounding, or an operator has no rule.",
        (
            ">>> norms = [nn.Sequential(nn.Linear(9, 8), nn.LayerNorm(8, eps=eps)).eval() for eps in (1e-12, 1e-6)]; "
            "_ = norms[1].load_state_dict(norms[0].state_dict()); "
            "print(conv2attn.certify(*norms, input_size=(5, 9)))"
        ),
        "Check the named place: an epsilon, a weight, another function.",
    ),
    "C2A408": ErrorRule(
        "weights are not finite",
        "A layer with NaN or infinity among its weights is not an affine map, so no claim covers it.",
        (
            ">>> conv = nn.Conv2d(3, 4, 3); conv.weight.data[0] = torch.nan; "
            "print(conv2attn.certify(conv, conv, input_size=(3, 9, 9)))"
        ),
        "Train or load it again.",
    ),
    "C2A501": ErrorRule(
        "no attention observed",
        "No attention was called while the model ran on the inputs.",
        ">>> conv2attn.heads(nn.Linear(3, 4), torch.ones(1, 3))",
        "Pass inputs on which the model attends, or the attention itself as an array.",
    ),
    "C2A502": ErrorRule(
        "not attention",
        "Attention is a non-negative array (heads, queries, keys) or (images, heads, queries, keys); rows sum to 1.",
        ">>> conv2attn.check_span(-torch.ones(9, 25, 25), grid=(5, 5))",
        "Pass the probabilities after the softmax, queries before keys, heads before both.",
    ),
    "C2A503": ErrorRule(
        "grid unknown",
        "Offsets are counted in pixels, so the sides of the grid of tokens must be known.",
        ">>> conv2attn.check_span(torch.full((9, 23, 23), 1 / 23))",
        "Pass its sides with --grid, and the number of leading class tokens with --extra-tokens.",
    ),
    "C2A504": ErrorRule(
        "offsets do not fit the grid",
        "An offset needs one integer for each axis of the grid, and no offset may occur twice.",
        ">>> conv2attn.check_span(torch.full((9, 25, 25), 1 / 25), grid=(5, 5), offsets=[(0, 0, 0)])",
        "Pass --kernel-size and --dilation, or --offsets, with as many axes as the grid.",
    ),
    "C2A505": ErrorRule(
        "not attention by position alone",
        "Attention that depends on the image is a different map for each image, so no single convolution is "
        "nearest to it.",
        "$ conv2attn recover heads.npz --grid 5x5 -o found.pt",
        "Recover a layer without query and key, or check_span its attention on images.",
    ),
    "C2A601": ErrorRule(
        "training diverged",
        "The loss is infinite or NaN, so training cannot continue.",
        "$ conv2attn train quadratic --data digits --layers 1 --width 9 --heads 1 --learning-rate 1e30",
        "Lower --learning-rate, or train in --precision float32; the checkpoint before is kept.",
    ),
    "C2A603": ErrorRule(
        "heads cannot be softened",
        "Only quadratic heads that read no content have a sharpness that can be lowered within a known bound.",
        '>>> conv2attn.soften(conv2attn.convert(nn.Conv2d(3, 4, 3), encoding="enumerated"), alpha=5)',
        "Convert with encoding='quadratic' first, or leave the layer out with --skip.",
    ),
    "C2A604": ErrorRule(
        "heads cannot begin as shifts",
        "A start needs a table of positions that is added to the tokens, heads with two numbers per axis and wave, "
        "and layers whose queries and keys are linear in normed tokens that nothing else writes positions into.",
        ">>> conv2attn.start_at_convolution(nn.TransformerEncoderLayer(8, 2), example_input=torch.ones(4, 1, 8))",
        "Name the parts with parts=Parts(positions=..., writers=[...]), or take another network.",
    ),
    "C2A406": ErrorRule(
        "convolution not compared",
        "The first network has no convolution at this layer's place, for example attention, so it was not compared.",
        (
            ">>> print(conv2attn.certify(nn.Sequential(nn.Identity()), "
            "conv2attn.convert(nn.Sequential(nn.Conv2d(3, 4, 3))), input_size=(3, 8, 8)))"
        ),
        "Pass the original network first.",
    ),
}


def whole_number(value: object, name: str) -> int:
    """An argument as an int, from an integer of any library.

    Raises:
        UsageError: the value is not an integer (C2A001).
    """
    try:
        return index(cast(SupportsIndex, value))
    except TypeError:
        raise UsageError("C2A001", f"{name}={value!r} is not a whole number", "Pass a whole number.") from None


def real_number(value: object, name: str) -> float:
    """An argument as a float, from a number of any library.

    Raises:
        UsageError: the value is not a number, or too large for a float (C2A001).
    """
    try:
        if not isinstance(value, (str, bytes)):
            return float(cast(SupportsFloat, value))
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise UsageError("C2A001", f"{name}={value!r} is not a number", "Pass a number.")
