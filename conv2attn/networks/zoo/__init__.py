"""Networks that are built from a plan: residual networks, the paper's attention classifier, a vision transformer."""

from conv2attn.networks.zoo.classifier import AttentionClassifier, ClassifierPlan
from conv2attn.networks.zoo.resnet import ResNet, ResNetPlan, recognise_resnet
from conv2attn.networks.zoo.transformer import TransformerPlan, VisionTransformer

__all__ = [
    "AttentionClassifier",
    "ClassifierPlan",
    "ResNet",
    "ResNetPlan",
    "TransformerPlan",
    "VisionTransformer",
    "recognise_resnet",
]
