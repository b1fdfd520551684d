"""Commands called in this process, and the small networks that they are called on."""

import functools
from collections import OrderedDict
from pathlib import Path

import click
import torch
from click.testing import CliRunner, Result
from torch import nn

import conv2attn
from conv2attn.cli import main
from conv2attn.networks.zoo import ResNet, ResNetPlan

PLAN = ResNetPlan(depths=(1, 1, 1, 1), width=4, classes=5, stem="cifar")
LAYERS = 12
SIZE = ["--input-size", "3x12x10"]


def call(*arguments: object, program: click.Group = main) -> Result:
    """The result of a command, which ends without a Python error."""
    result = CliRunner().invoke(program, [str(argument) for argument in arguments])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result


def refused(*arguments: object, match: str) -> None:
    """The command ends with exit code 2 and one line on stderr that says why; stdout stays empty."""
    result = call(*arguments)
    assert (result.exit_code, result.stdout, len(result.stderr.splitlines())) == (2, "", 1), result.output
    assert match in result.stderr, result.stderr
    assert "weights_only" not in result.stderr


def options_of(command: click.Command) -> set[str]:
    """The words of the options of a command, and of the commands in it."""
    own = {word for each in command.params for word in (*each.opts, *each.secondary_opts)}
    return own.union(*map(options_of, command.commands.values() if isinstance(command, click.Group) else ()))


@functools.cache
def residual() -> torch.nn.Module:
    """A residual network of `PLAN` with seeded weights, to be copied by whoever changes it."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return ResNet(PLAN)


def save_residual(path: Path) -> Path:
    """Writes the state dict of `residual`."""
    torch.save(residual().state_dict(), path)
    return path


def two_layers() -> nn.Module:
    """Two convolutions, one named as in a ResNet, and a norm: for commands that do not ask what network it is."""
    with torch.random.fork_rng():
        torch.manual_seed(0)
        conv1, norm, last = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.Conv2d(4, 4, 3, stride=2)
    block = nn.Sequential(OrderedDict(conv1=last))
    return nn.Sequential(OrderedDict(conv1=conv1, bn1=norm, layer1=nn.Sequential(block))).eval()


def save_converted(path: Path, **options) -> Path:
    """Writes the conversion of `residual`."""
    conv2attn.save(conv2attn.convert(residual(), **options), path)
    return path
