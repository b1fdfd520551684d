"""Labelled images on this machine: read from disk, never downloaded; and their augmentation."""

from conv2attn.experiments.data.augmentation import Augmentation, normalised
from conv2attn.experiments.data.images import LabelledImages
from conv2attn.experiments.data.sources import read_images_of

__all__ = ["Augmentation", "LabelledImages", "normalised", "read_images_of"]
