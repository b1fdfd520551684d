"""Labelled images on this machine: read from disk, never downloaded; and their augmentation."""

from conv2attn.experiments.data.labelled_images import Augmentation, LabelledImages, accuracy, normalised_images
from conv2attn.experiments.data.sources import read_images_of

__all__ = ["Augmentation", "LabelledImages", "accuracy", "normalised_images", "read_images_of"]
