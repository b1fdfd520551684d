"""Files and folders of other libraries that are recognised by a marker, and the next command for each."""

from pathlib import Path

from conv2attn.errors import CheckpointError

FOLDERS = """\
model_index.json | a pipeline of diffusers | Pass the folder of one of its networks: PATH/unet, say.
.metadata | a checkpoint of torch.distributed | Join it first: python -m torch.distributed.checkpoint.format_utils \
dcp_to_torch PATH weights.pt.
adapter_config.json | an adapter of PEFT | Merge it into its network in Python, merge_and_unload(), and save that \
network.
saved_model.pb | a SavedModel of TensorFlow | Convert its weights to a PyTorch state dict first.
random_states_*.pkl | a checkpoint of accelerate | Pass the file of weights in it, PATH/model.safetensors, with --arch.
*.safetensors.index.json | a list of shards without a config.json | Put the config.json of its network beside it, and \
pass the folder.
network.pt | a training run | Pass the network in it: PATH/network.pt.
*.safetensors | a folder of weights | Pass the file of weights in it, with --arch.
*.pt | a folder of weights | Pass the file of weights in it, with --arch.
"""
"""The file by which a folder is known, what it is then, and what to do: the first line decides, PATH is the folder."""

EXAMPLE_FOLDERS = (Path(__file__).parent / "examples", Path(__file__).parents[1] / "examples")
"""Where an installed wheel and a checkout have the example networks."""


def unknown_folder(folder: Path) -> CheckpointError:
    """Why a folder without a config.json is not read, and what to do (C2A301)."""
    for line in FOLDERS.splitlines():
        marker, name, following = line.split(" | ")
        if next(folder.glob(marker), None):
            return CheckpointError("C2A301", f"{folder} is {name}", following.replace("PATH", str(folder)))
    reason = f"{folder} is a directory without a config.json"
    return CheckpointError("C2A301", reason, "Pass the file of weights in it, or a Hugging Face folder.")


def unknown_path(path: str) -> CheckpointError:
    """Why a path that is not there cannot be read: a name of a hub is no file (C2A301)."""
    library, mark, _ = path.partition(":")
    if mark and library in ("http", "https"):
        return CheckpointError("C2A301", f"{path} is an address", "Nothing is downloaded: pass the file itself.")
    if mark and library in ("timm", "torchvision", "transformers", "hf", "hf-hub"):
        built = f" of its weights, with --arch {path}" if library in ("timm", "torchvision") else " or folder of it"
        remedy = f"Nothing is downloaded: pass a file{built}."
        return CheckpointError("C2A301", f"{path} is a name of {library}, and no file here", remedy)
    organisation, _, rest = path.partition("/")
    if rest and "/" not in rest and "." not in rest and organisation.isidentifier() and not Path(organisation).exists():
        remedy = "Nothing is downloaded: pass the folder or the file that you downloaded, with --arch if it is a file."
        return CheckpointError(
            "C2A301", f"{path} does not exist, and looks like a name of the Hugging Face hub", remedy
        )
    for example in (folder / Path(path).name for folder in EXAMPLE_FOLDERS):
        if path in (example.name, f"examples/{example.name}") and example.is_file():
            return CheckpointError("C2A301", f"{path} does not exist", f"The example of that name is {example}.")
    return CheckpointError("C2A301", f"{path or repr(path)} does not exist", "Check the path.")
