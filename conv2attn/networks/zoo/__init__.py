"""Networks that are built from a plan: residual networks, the paper's attention classifier, a vision transformer."""

from conv2attn.networks.zoo.classifier import AttentionClassifier, ClassifierPlan, line_to_depth
from conv2attn.networks.zoo.resnet import TWINS, ResNet, ResNetPlan, recognise_resnet
from conv2attn.networks.zoo.transformer import TransformerPlan, VisionTransformer

__all__ = [
    "TWINS",
    "AttentionClassifier",
    "ClassifierPlan",
    "ResNet",
    "ResNetPlan",
    "TransformerPlan",
    "VisionTransformer",
    "line_to_depth",
    "recognise_resnet",
]
