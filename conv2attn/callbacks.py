"""Callbacks that log the kinds of heads after each epoch: for Lightning, and for transformers' Trainer."""

from collections import Counter
from typing import Any

from torch import nn

from conv2attn.extras import is_installed, optional
from conv2attn.networks.specimens import map_tensors
from conv2attn.span import heads


def head_numbers(network: nn.Module, inputs: Any, **options: Any) -> dict[str, float]:
    """For each layer, the number of heads of each kind, and the share of its map explained by the nearest convolution.

    Args:
        network: a network that attends; it runs in evaluation mode, without gradients, and is unchanged afterwards.
        inputs, options: see `conv2attn.heads`.
    Returns:
        Numbers by the names `heads/LAYER/KIND` and `heads/LAYER/conv3`, or another kernel size; layers whose attention
        is not read have none.
    """
    numbers: dict[str, float] = {}
    for layer in heads(network, inputs, **options).layers:
        counts = Counter(str(head.kind) for head in layer.heads)
        numbers |= {f"heads/{layer.name}/{kind}": float(count) for kind, count in counts.items()}
        numbers |= {f"heads/{layer.name}/conv{fact.kernel_size}": fact.share for fact in layer.convolutions}
    return numbers


def heads_in_lightning(inputs: Any, network: str = "", **options: Any) -> Any:
    """A callback for Lightning's Trainer that logs `head_numbers` at the end of each training epoch.

    Args:
        inputs: inputs of the network, the same in every epoch.
        network: name of the part of the module that attends; by default the module itself.
    Raises:
        UsageError: Lightning is not installed (C2A003).
    """
    home = "pytorch_lightning" if is_installed("pytorch_lightning") else "lightning.pytorch"

    class HeadsPerEpoch(optional(home, "heads_in_lightning").Callback):  # type: ignore[misc]
        """Logs `head_numbers`."""

        def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:
            """Logs once per epoch, in the process that logs."""
            if trainer.is_global_zero:
                numbers = head_numbers(
                    pl_module.get_submodule(network),
                    map_tensors(lambda tensor: tensor.to(pl_module.device), inputs),
                    **options,
                )
                pl_module.log_dict(numbers, rank_zero_only=True)

    return HeadsPerEpoch()


def heads_in_trainer(trainer: Any, inputs: Any, network: str = "", **options: Any) -> None:
    """Makes a Trainer of transformers log `head_numbers` at the end of each epoch, to all its report integrations.

    Args:
        trainer: a `transformers.Trainer`.
        inputs: inputs of the network, the same in every epoch.
        network: name of the part of the model that attends; by default the model itself.
    """

    class HeadsPerEpoch(optional("transformers", "heads_in_trainer").TrainerCallback):  # type: ignore[misc]
        """Logs `head_numbers`."""

        def on_epoch_end(self, args: Any, state: Any, control: Any, model: Any = None, **_: Any) -> None:
            """Logs once per epoch, in the process that logs."""
            if state.is_world_process_zero:
                part = model.get_submodule(network)
                device = next(part.parameters()).device
                trainer.log(head_numbers(part, map_tensors(lambda tensor: tensor.to(device), inputs), **options))

    trainer.add_callback(HeadsPerEpoch())
