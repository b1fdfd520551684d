"""Labelled images on this machine: read from disk, never downloaded; and their augmentation."""

from conv2attn.experiments.data.augmentation import Augmentation, normalised_images
from conv2attn.experiments.data.labelled_images import LabelledImages
from conv2attn.experiments.data.sources import read_images_of

__all__ = ["Augmentation", "LabelledImages", "normalised_images", "read_images_of"]
