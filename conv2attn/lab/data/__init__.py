"""Labelled images, read from disk and never downloaded, and their augmentation."""

from conv2attn.lab.data.labelled_images import Augmentation, LabelledImages, accuracy, normalised_images
from conv2attn.lab.data.sources import read_fashion_mnist, read_idx, read_images_of

__all__ = [
    "Augmentation",
    "LabelledImages",
    "accuracy",
    "normalised_images",
    "read_fashion_mnist",
    "read_idx",
    "read_images_of",
]
