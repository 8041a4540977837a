"""pulsetrain takes the pulse of a training run."""

__version__ = "0.1.0"
__all__ = ["__version__"]
