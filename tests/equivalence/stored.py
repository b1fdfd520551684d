"""Networks in files beside their certificate, and ways to forge the files and the certificate."""

import copy
import functools
import hashlib
import json
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from equivalence.planted import ulp
from torch import nn

import conv2attn
from conv2attn.equivalence import certify, recheck

with torch.random.fork_rng():
    torch.manual_seed(0)
    KINDS = {
        "1d": nn.Conv1d(2, 3, 3, padding=1),
        "1d dilated": nn.Conv1d(2, 2, 2, dilation=3, padding=2),
        "2d": nn.Conv2d(2, 3, (3, 2), padding=1),
        "strided": nn.Conv2d(2, 4, 3, stride=(2, 3), padding=1, bias=False),
        "grouped": nn.Conv2d(4, 4, 3, groups=2, padding=1),
        "depthwise": nn.Conv2d(3, 3, (1, 3), groups=3),
        "reflected": nn.Conv1d(2, 2, 3, padding=1, padding_mode="reflect"),
        "replicated": nn.Conv2d(2, 2, (3, 1), padding=(1, 0), padding_mode="replicate"),
        "circular": nn.Conv1d(3, 2, 3, padding=1, padding_mode="circular"),
        "transposed": nn.ConvTranspose1d(2, 3, 3, stride=2, padding=1),
        "wide": nn.Conv1d(4, 2, 3).double(),
    }


def size_of(original):
    return (original.in_channels, *(6, 7)[: len(original.kernel_size)])


def small():
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return nn.Sequential(nn.Conv2d(2, 3, 3), nn.BatchNorm2d(3), nn.Conv2d(3, 2, 1), nn.Conv2d(2, 2, 1)).eval()


class Stored:
    """Two networks in files, and their certificate, which may be forged."""

    def __init__(self, folder, original, converted, **asked):
        self.move(folder)
        for which, network in (("original", original), ("converted", converted)):
            attends = any(isinstance(module, conv2attn.MultiHeadSelfAttention) for module in network.modules())
            if attends:
                conv2attn.save(network, self.paths[which])
            else:
                torch.save(network.state_dict(), self.paths[which])
        self.body = json.loads(certify(original, converted, **asked).to_json())
        for which in ("original", "converted"):
            self.name_architecture(which)
        self.sign()
        self.files = {which: self.paths[which].read_bytes() for which in ("original", "converted")}

    def move(self, folder):
        """Looks for the files in another folder."""
        names = {"original": "a.pt", "converted": "b.pt", "certificate": "c.json"}
        self.paths = {which: folder / name for which, name in names.items()}

    def copied(self, folder):
        """The same networks and certificate, unforged, in a folder."""
        other = copy.deepcopy(self)
        other.move(folder)
        for which, content in self.files.items():
            other.paths[which].write_bytes(content)
        other.sign()
        return other

    def name_architecture(self, which):
        """Adds the architecture in a file to the certificate, as verify does."""
        content = torch.load(self.paths[which], weights_only=True)
        if "architecture" in content:
            named = json.dumps(content["architecture"], sort_keys=True, default=str)
            self.body["circumstances"][f"{which} architecture"] = named

    def sign(self):
        """Writes the certificate, with the hashes that the files have now."""
        for which in ("original", "converted"):
            digest = hashlib.sha256(self.paths[which].read_bytes()).hexdigest()
            self.body["circumstances"] |= {which: str(self.paths[which]), f"{which} sha256": digest}
        self.paths["certificate"].write_text(json.dumps(self.body))

    def forge(self, change, which="converted"):
        """Changes what a file holds, and signs it."""
        content = torch.load(self.paths[which], weights_only=True)
        content = change(content) or content
        torch.save(content, self.paths[which])
        self.sign()
        return self

    def look(self, *files):
        return recheck(str(self.paths["certificate"]), *files)


@functools.cache
def known(kind):
    """A pair that is certified once: a layer of `KINDS`, or "network", of which one layer is left out."""
    original = small() if kind == "network" else KINDS[kind]
    converted = conv2attn.convert(original, skip="3" if kind == "network" else ())
    with TemporaryDirectory() as folder:
        size = (2, 5, 6) if kind == "network" else size_of(original)
        return Stored(Path(folder), original, converted, input_size=size)


def stored(kind, folder):
    """The files of such a pair in a folder, to be changed."""
    return known(kind).copied(folder)


def plan_of(content):
    return content["layers"][""]


def heads(content, index):
    """Takes these heads, in this order."""
    for key, tensor in content["state_dict"].items():
        if key != "bias":
            content["state_dict"][key] = tensor[..., index].clone() if tensor.ndim == 3 else tensor[index].clone()
    plan_of(content)["positions"][0] = len(index)


def count(content):
    return len(content["state_dict"]["encoding.alpha"])


def factor(content):
    """The factor that holds the taps, heads first."""
    return next(
        content["state_dict"][key].permute(2, 0, 1) for key in ("value", "output") if key in content["state_dict"]
    )


def permuted(content):
    heads(content, [*range(1, count(content)), 0])


def split(content):
    heads(content, [*range(count(content)), 0])
    half = factor(content)[0] / 2
    factor(content)[0], factor(content)[-1] = half, half


def dead(alpha=128.0, by=None, number=0.0):
    """One head more that does nothing, far off the grid or `by` beside the last."""

    def change(content):
        heads(content, [*range(count(content)), 0])
        factor(content)[-1] = number
        center = content["state_dict"]["encoding.center"]
        center[-1] = 5.0 if by is None else center[-2] + by
        content["state_dict"]["encoding.alpha"][-1] = alpha

    return change


def cancelling(center=5.0):
    """Two heads more, off the grid, that add up to nothing."""

    def change(content):
        heads(content, [*range(count(content)), 0, 0])
        factor(content)[-2], factor(content)[-1] = 1.0, -1.0
        content["state_dict"]["encoding.center"][-2:] = center

    return change


def padded(content):
    """More padding, and queries that stand as far from the border as before."""
    for part in ("padding", "sites"):
        for side in ("before", "after"):
            plan_of(content)[part][side] = tuple(x + 1 for x in plan_of(content)[part][side])


def unpadded(content):
    """Heads that lie off the grid, and move on to the nearest key there."""
    for part in ("padding", "sites"):
        for side in ("before", "after"):
            plan_of(content)[part][side] = tuple(0 for _ in plan_of(content)[part][side])
    plan_of(content)["padding"]["mode"] = "zeros"


def identity(content):
    """The identity that was not stored."""
    plan, state, groups = plan_of(content), content["state_dict"], plan_of(content)["groups"]
    key, width = ("output", plan["d_out"]) if "value" in state else ("value", plan["d_in"])
    eye = torch.eye(width // groups, dtype=factor(content).dtype).repeat(groups, 1)[..., None]
    state[key], plan[key] = eye.repeat(1, 1, count(content)), True


def far_below(off):
    """An inner channel more, of 2^-60, which float64 sums do not see; it adds something or nothing."""

    def change(content):
        state, plan = content["state_dict"], plan_of(content)
        identity(content)
        value, output = state["value"], state["output"]
        groups, extra = plan["groups"], torch.zeros_like(value[:1])
        if groups > 1:
            return
        extra[0, 0] = 2.0**-60
        state["value"], state["output"] = (
            torch.cat([value, extra]),
            torch.cat([output, torch.zeros_like(output[:, :1])], 1),
        )
        state["output"][-1, -1, 0] = 2.0**-60 * off
        plan["d_head"] += 1

    return change


def at(key, change):
    """Changes a copy of a tensor."""

    def forge(content):
        state = content["state_dict"]
        name = ("value" if "value" in state else "output") if key == "factor" or key not in state else key
        state[name] = change(state[name].clone().contiguous())

    return forge


def planned(*path, to):
    """Changes an entry of the plan."""

    def forge(content):
        plan = plan_of(content)
        for key in path[:-1]:
            plan = plan[key]
        plan[path[-1]] = to(plan[path[-1]])

    return forge


def first(number):
    def change(tensor):
        tensor.view(-1)[0] = number
        return tensor

    return change


def last_ulp(tensor):
    ulp(tensor.view(-1), (-1,))
    return tensor


def both(*changes):
    return lambda content: [change(content) for change in changes] and None


def off(tensor):
    return tuple(x + 1 for x in tensor)


def state(key, change):
    """Changes a tensor of a file, wrapped or not."""

    def forge(content):
        tensors = content.get("state_dict", content)
        tensors[key] = change(tensors[key].clone())

    return forge


def wrapped(key, prefix=""):
    return lambda content: {key: {f"{prefix}{name}": tensor for name, tensor in content.items()}, "epoch": 3}


def without(key):
    return lambda content: content.get("state_dict", content).pop(key).new_empty(0).tolist() or None
