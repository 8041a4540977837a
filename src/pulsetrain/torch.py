"""`pulsetrain.torch.watch(model, optimizer)`: statistics of the layers of a PyTorch model."""

from pulsetrain.training.torch import watch

__all__ = ["watch"]
