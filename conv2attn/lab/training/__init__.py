"""Training runs: a recipe, a folder that a run can be continued from, and the loop over one or several processes."""

from conv2attn.lab.training.loop import train
from conv2attn.lab.training.run_folder import TrainingRun

__all__ = ["TrainingRun", "train"]
