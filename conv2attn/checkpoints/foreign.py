"""Models that other libraries, or the user, build, with the state dict of a file."""

import importlib
from pathlib import Path
from typing import Any

from torch import nn

from conv2attn.checkpoints.arrays import stored
from conv2attn.checkpoints.reading import read_tensors
from conv2attn.errors import CheckpointError, Conv2AttnError, UsageError


def built(arch: str, path: str) -> nn.Module:
    """The model that `arch` names, with the state dict in `path`.

    Args:
        arch: "transformers:FOLDER", "timm:NAME", or "package.module:factory", which is called without arguments.
    Raises:
        UsageError: it names nothing that can be built here (C2A001).
        CheckpointError: the state dict is not the model's (C2A304), or cannot be read.
    """
    kind, _, name = arch.partition(":")
    try:
        if kind == "transformers":
            return of_transformers(name, path)
        if kind == "timm":
            model = importlib.import_module("timm").create_model(name, pretrained=False)
        else:
            model = getattr(importlib.import_module(kind), name)()
    except (ImportError, AttributeError, OSError, ValueError, RuntimeError, TypeError) as error:
        if isinstance(error, Conv2AttnError):
            raise
        raise UsageError("C2A001", f"--arch {arch} builds nothing here ({str(error).splitlines()[0]})") from error
    if not isinstance(model, nn.Module):
        raise UsageError("C2A001", f"--arch {arch} builds a {type(model).__name__}, not an nn.Module")
    try:
        model.load_state_dict(state_in(path))
    except RuntimeError as error:
        raise CheckpointError("C2A304", f"{path} does not fit {arch} ({str(error).splitlines()[0]})") from error
    return model.eval()


def state_in(path: str) -> dict[str, Any]:
    """The state dict in a file of safetensors or of torch."""
    return stored(path) if Path(path).suffix == ".safetensors" else dict(read_tensors(path))


def of_transformers(folder: str, path: str) -> nn.Module:
    """The base model that the configuration in `folder` describes, with the weights of it in `path`.

    Raises:
        CheckpointError: weights are missing, the pooler's apart, after which nothing attends (C2A304).
    """
    library = importlib.import_module("transformers")
    library.logging.set_verbosity_error()
    library.logging.disable_progress_bar()
    config = library.AutoConfig.from_pretrained(folder, local_files_only=True)
    kind = type(library.AutoModel.from_config(config))
    model, told = kind.from_pretrained(None, config=config, state_dict=state_in(path), output_loading_info=True)
    missing = sorted(name for name in told["missing_keys"] if not name.startswith("pooler."))
    if missing:
        found = f"{path} lacks {len(missing)} weights of transformers:{folder}, {missing[0]} first"
        raise CheckpointError("C2A304", found, "Pass the state dict of such a model.")
    found_model: nn.Module = model
    return found_model.eval()
