"""Training runs: a recipe, a folder from which a run continues, and the loop over one or several processes."""

from conv2attn.lab.training.loop import Training, train
from conv2attn.lab.training.recipe_networks import Widths, classifies, fresh_network, hybrid_network, network_digest
from conv2attn.lab.training.run_folder import TrainingRun
from conv2attn.lab.training_recipe import TrainingRecipe, learning_rate

__all__ = [
    "Training",
    "TrainingRecipe",
    "TrainingRun",
    "Widths",
    "classifies",
    "fresh_network",
    "hybrid_network",
    "learning_rate",
    "network_digest",
    "train",
]
