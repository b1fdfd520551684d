"""Every error that a user can meet: one base class, one code per rule, one sentence that says what to do."""

import re
from dataclasses import dataclass
from operator import index
from typing import Any, final

OPTION = re.compile(r"--([a-z][a-z-]*[a-z])")
"""An option of the command line, in the advice of an error."""
ARGUMENTS = {"inputs": "example_input"}
"""Arguments of Python whose option has another name."""


class Conv2AttnError(Exception):
    """A rule was broken. Shown as `CODE what was found. What to do.`

    Advice names arguments as options of the command line, `--input-size`, which Python shows as `input_size`, and
    `--inputs` as `example_input`.

    Args:
        code: a key of `RULES`.
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
    """Something worth knowing before the result is used. Shown as `CODE what was found. What to do.`"""

    def __init__(self, code: str, found: str, remedy: str):
        self.code = code
        super().__init__(f"{code} {found}. {in_python(remedy)}")


def in_python(advice: str) -> str:
    """Advice with the names of arguments in Python; a command to type stays as it is."""
    if "conv2attn " in advice:
        return advice
    return OPTION.sub(lambda option: ARGUMENTS.get(option[1], option[1].replace("-", "_")), advice)


class UsageError(Conv2AttnError, ValueError):
    """The call itself is wrong: an argument, a shape, a file."""


class UnsupportedError(Conv2AttnError):
    """The question is meaningful, but this project does not answer it."""

    exit_code = 3


class GeometryError(UsageError):
    """Sides, paddings, strides or offsets that do not fit together."""


class AlphaError(UsageError):
    """A sharpness that is not a positive finite number."""


class HeadSizeError(UsageError):
    """Heads too few or too narrow for the convolution asked for."""


class EngineError(UnsupportedError):
    """An order of evaluation that is not exact for this layer as it is now."""


class CheckpointError(UsageError):
    """A file that is missing, damaged, of another kind, or in the way."""


@final
@dataclass(frozen=True)
class Rule:
    """The meaning of a code, for `conv2attn explain CODE`."""

    title: str
    why: str
    remedy: str


RULES: dict[str, Rule] = {
    "C2A001": Rule(
        "argument out of range",
        "A number is smaller, larger or less exact than the call allows.",
        "Pass a number within these limits.",
    ),
    "C2A002": Rule(
        "unknown name",
        "The call knows a fixed set of names, of engines, encodings or architectures for instance, and this is none.",
        "Pass one of the names that are known.",
    ),
    "C2A003": Rule(
        "package not installed",
        "Some calls use a package that does not come with conv2attn.",
        "Install it with pip.",
    ),
    "C2A004": Rule(
        "arguments contradict each other",
        "Two arguments exclude each other, or one has no effect without the other.",
        "Pass one of them, or both where one needs the other.",
    ),
    "C2A005": Rule(
        "image size unknown",
        "Neither the call nor the network says how large the images are.",
        "Pass --input-size, such as 3x224x224, or --inputs.",
    ),
    "C2A006": Rule(
        "argument not understood",
        "A text cannot be read as what the option takes, or an object is of another type.",
        "Pass it in the form that is named here.",
    ),
    "C2A007": Rule(
        "sizes do not agree",
        "Two sizes must fit each other: one number for each axis or channel, groups that divide channels.",
        "Pass as many numbers as there are axes or channels, and sizes that divide each other.",
    ),
    "C2A008": Rule(
        "nothing to work on",
        "No layer of the network is what the call is for, or none has such a name.",
        "List the layers with conv2attn inspect, and pass a network that has one.",
    ),
    "C2A009": Rule(
        "network fails",
        "The network, or the function that builds it, raises an error on what it is given.",
        "Pass images that the network takes, and arguments that its class takes.",
    ),
    "C2A010": Rule(
        "torch is compiling",
        "torch.export and torch.compile keep state in the process. While it is set, networks run in another way, and "
        "what they compute then says nothing about later calls.",
        "Call it outside torch.compile and torch.export, or in a new process.",
    ),
    "C2A101": Rule(
        "not a convolution",
        "Only layers of torch.nn.Conv1d, Conv2d, Conv3d and their transposed forms are read, and only with "
        "torch's own forward.",
        "Pass such a layer, or a whole model with an example_input, so that the convolutions in its forward are seen.",
    ),
    "C2A102": Rule(
        "dtype without a softmax",
        "Attention needs exp and an order: complex, quantised and integer weights have neither.",
        "Dequantise or cast the layer to float64, float32, bfloat16 or float16 first.",
    ),
    "C2A103": Rule(
        "lazy layer not initialised",
        "A lazy layer has no weights, hence no taps, until it has seen an input.",
        "Run the model once on an input, then convert.",
    ),
    "C2A104": Rule(
        "unknown padding mode",
        "Padding must be a linear map in front of the keys. Four modes are known: zeros, reflect, replicate "
        "and circular.",
        "Set padding_mode to zeros, reflect, replicate or circular, or leave the layer unconverted with --skip.",
    ),
    "C2A105": Rule(
        "head size too small",
        "Theorem 1 expresses min(D_h, D_out) output channels; for independent heads d_head >= rank of every tap is "
        "necessary and sufficient, so min(d_in, d_out) always serves.",
        "Leave d_head unset, or raise it.",
    ),
    "C2A106": Rule(
        "forward of its own",
        "A subclass with its own forward may pad, standardise or mask, so its attributes do not say what it computes; "
        "and what has a name that attention needs, or computes a weight that would have to go, stays a convolution.",
        "Pass example_input, so that the convolution that its forward really performs is seen and converted.",
    ),
    "C2A107": Rule(
        "functional convolution not converted",
        "torch.nn.functional.conv*d was called outside a convolution layer and could not be replaced.",
        "Wrap the call in an nn.Conv layer.",
    ),
    "C2A108": Rule(
        "network needs the convolution itself",
        "The network's own code asks a layer that is attention now for what only torch's convolutions have.",
        "Leave that layer unconverted with skip.",
    ),
    "C2A109": Rule(
        "no convolution",
        "Nothing was replaced: the module has no torch.nn.Conv layer, and calls no convolution that could be seen.",
        "Pass a model with convolutions, and example_input if it calls them as functions.",
    ),
    "C2A110": Rule(
        "no rule for this operator",
        "The operation has no rule for operators of this type.",
        "Register a rule, or pass the operator as Dense.",
    ),
    "C2A111": Rule(
        "not a convolution of whole patches",
        "On patch tokens a convolution must map whole patches to whole patches at every size, padding included.",
        "Choose a patch that is a multiple of the stride, pad to keep the size, or convert without patch.",
    ),
    "C2A120": Rule(
        "input does not fit the layer",
        "The input has another number of channels or axes than the layer.",
        "Pass (batch, channels, *sides), or (channels, *sides) for a single image.",
    ),
    "C2A121": Rule(
        "grid too small",
        "The padded grid is smaller than the dilated kernel, or a padding needs more pixels than there are.",
        "Pass a larger input or less padding.",
    ),
    "C2A122": Rule(
        "structure does not fit",
        "The tokens, terms or edges of a structure are not those that the operation needs.",
        "Count the nodes, edges and terms of the structure; node indices start at 0.",
    ),
    "C2A130": Rule(
        "alpha out of range",
        "alpha is the sharpness of a head in inverse squared pixels: positive and finite.",
        'Pass a positive number, or "auto".',
    ),
    "C2A131": Rule(
        "alpha leaks",
        "At a small alpha a head leaks: a part of its attention falls on other keys than its target. The "
        "warning comes below 46, the value in the paper.",
        'Pass alpha="auto" for exactly one-hot attention.',
    ),
    "C2A132": Rule(
        "positions do not learn",
        "A head's centre and sharpness get their gradients through the attention that leaks, which is about "
        "exp(-alpha). The gradients are exactly 0 at alpha=128, 1e-20 at 46, 1e-9 at 20, 1e-5 at 10 and 7e-4 "
        "at 5.",
        "Pass a smaller alpha, such as alpha=5, at which they move; the attention leaks then.",
    ),
    "C2A201": Rule(
        "engine not exact for this layer",
        "An engine is an order of evaluation. Each is exact for some layers only, which is decided from the "
        "present parameters.",
        'Use set_engine(layer, "auto"), or "dense", which is exact for all.',
    ),
    "C2A202": Rule(
        "not enough memory",
        "The call needs more memory than its limit, or than there is: attention needs one query against all keys.",
        "Raise memory_limit, or use an engine that does not compare all pairs.",
    ),
    "C2A203": Rule(
        "engine not decided before tracing",
        "An engine is decided from the values of centres and sharpness, which a traced graph cannot read.",
        "Call the layer once on an image of this dtype and device before you compile or export it.",
    ),
    "C2A301": Rule("file missing", "The path names no file.", "Check the path."),
    "C2A302": Rule(
        "file damaged",
        "The file is empty, truncated, or its stored checksum does not match its contents.",
        "Copy or download it again.",
    ),
    "C2A303": Rule(
        "file of another kind",
        "Files that can be read are state dicts, pickled modules of known classes, safetensors, torch.export "
        "and ONNX programs, and Hugging Face folders. Reading executes nothing in a file.",
        "Save the model with torch.save(model.state_dict(), path).",
    ),
    "C2A304": Rule(
        "architecture not recognised",
        "The keys and shapes of the state dict are not those of an architecture known here.",
        "Name the architecture with --arch, or build the model in Python and call conv2attn.convert(model).",
    ),
    "C2A305": Rule(
        "file exists",
        "Existing files are not overwritten unless you ask for it.",
        "Choose another name, or pass --force.",
    ),
    "C2A306": Rule(
        "model cannot be rebuilt from a file",
        "A file holds tensors and plain numbers, never code, so only architectures known here can be rebuilt from one.",
        "Save network.state_dict() with torch.save, and rebuild the network in Python.",
    ),
    "C2A307": Rule(
        "file too large",
        "Sizes are capped before anything is read, so that a file cannot exhaust the memory.",
        "Raise --max-size, in GiB, if the file is meant to be so large.",
    ),
    "C2A308": Rule(
        "unknown suffix",
        "The suffix chooses the format of a file, and this suffix is not known.",
        "Name the file .pt, .safetensors, .pt2 or .onnx.",
    ),
    "C2A309": Rule(
        "network not exported",
        "Every exported program is run from its file and compared with the network. A file that differs is not kept.",
        "Save it as .pt, or export the part that returns one tensor, with another --engine.",
    ),
    "C2A401": Rule(
        "geometry differs",
        "At some input size the heads do not read the pixels that the taps of the convolution read.",
        "Convert again.",
    ),
    "C2A310": Rule(
        "saved in a form that loses attention",
        "save_pretrained stores weights and a config, from which from_pretrained builds the original class, with its "
        "convolutions and without the attention.",
        "Use conv2attn.save(network, path) and conv2attn.load(path).",
    ),
    "C2A402": Rule(
        "weights differ",
        "A product W_val W_out is not exactly the matrix of its tap, or the biases differ.",
        "Convert again.",
    ),
    "C2A403": Rule(
        "attention leaks",
        "A head puts more attention off its target than the unit roundoff of the dtype.",
        "Raise alpha, or convert again with --alpha auto.",
    ),
    "C2A404": Rule(
        "measured difference",
        "The measured difference exceeds its bound, no bound is known, or the original is not finite on the input.",
        "Keep the input with --save-witness if there is one; where the original overflows, lower --input-range.",
    ),
    "C2A405": Rule(
        "structure differs",
        "The operations between the convolutions differ, or are not known to be equal.",
        "Convert again, and change nothing else in the network.",
    ),
    "C2A407": Rule(
        "outputs differ in kind",
        "An output is missing, empty, not finite, or of another shape or dtype.",
        "Return from the second network what the first returns, under the same keys.",
    ),
    "C2A409": Rule(
        "tolerance exceeded",
        "The outputs differ by more than the tolerance, or are not known to differ by less.",
        "Raise --tolerance, or leave it out to ask for the same map.",
    ),
    "C2A410": Rule(
        "compared on images alone",
        "Neither network was converted from the other and their graphs differ, so no bound and no proof compares them.",
        "Ask with --tolerance whether they agree on the images; --inputs names more of them.",
    ),
    "C2A408": Rule(
        "weights are not finite",
        "A layer with NaN or infinity among its weights is not an affine map, so no claim covers it.",
        "Train or load it again.",
    ),
    "C2A501": Rule(
        "no attention seen",
        "No attention was called while the model ran on the inputs.",
        "Pass inputs on which the model attends, or the attention itself as an array.",
    ),
    "C2A502": Rule(
        "not attention",
        "Attention is a non-negative array (heads, queries, keys) or (images, heads, queries, keys); rows sum to 1.",
        "Pass the probabilities after the softmax, queries before keys, heads before both.",
    ),
    "C2A503": Rule(
        "grid unknown",
        "Offsets are counted in pixels, so the sides of the grid of tokens must be known.",
        "Pass its sides with --grid, and the number of leading class tokens with --extra-tokens.",
    ),
    "C2A504": Rule(
        "offsets do not fit the grid",
        "An offset needs one integer for each axis of the grid, and no offset may occur twice.",
        "Pass kernel_size and dilation, or offsets, with as many axes as the grid.",
    ),
    "C2A505": Rule(
        "not attention by position alone",
        "Attention that depends on the image is a different map for each image, so no single convolution is "
        "nearest to it.",
        "Recover a layer without query and key, or check_span its attention on images.",
    ),
    "C2A601": Rule(
        "training diverged",
        "The loss is infinite or NaN, so training cannot continue.",
        "Lower --learning-rate, or train in --precision float32; the checkpoint before is kept.",
    ),
    "C2A602": Rule(
        "heads cannot be removed",
        "Heads are removed only from attention classifiers, and each layer must keep one.",
        "Choose other thresholds, or name the heads to remove.",
    ),
    "C2A603": Rule(
        "heads cannot be softened",
        "Only quadratic heads have a sharpness that can be lowered, and only from where they are precise enough.",
        "Convert with encoding='quadratic' and alpha='auto' first.",
    ),
    "C2A604": Rule(
        "heads cannot begin as shifts",
        "A start needs a table of positions that is added to the tokens, heads with two numbers per axis and wave, "
        "and layers whose queries and keys are linear in normed tokens that nothing else writes positions into.",
        "Name the parts with parts=Parts(positions=..., writers=[...]), or take another network.",
    ),
    "C2A406": Rule(
        "convolution not reached",
        "No input reached this convolution, or the first network has attention in its place, so it was not compared.",
        "Name images that reach it with --inputs, and pass the original network first.",
    ),
}


def whole_number(value: Any, name: str) -> int:
    """An argument as an int, whatever library its number is of.

    Raises:
        UsageError: it is no whole number (C2A001).
    """
    try:
        return index(value)
    except TypeError:
        raise UsageError("C2A001", f"{name}={value!r} is not a whole number", "Pass a whole number.") from None


def real_number(value: Any, name: str) -> float:
    """An argument as a float, whatever library its number is of.

    Raises:
        UsageError: it is no number, or too large for a float (C2A001).
    """
    try:
        if not isinstance(value, (str, bytes)):
            return float(value)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        pass
    raise UsageError("C2A001", f"{name}={value!r} is not a number", "Pass a number.")
