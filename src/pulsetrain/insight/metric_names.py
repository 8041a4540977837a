"""What the names tell that a program logs figures under: which values are good, and which names matter most."""

import re
from collections.abc import Iterable
from typing import Literal

Better = Literal["lower", "higher", ""]

_LOWER = re.compile(r"loss|err(or)?s?\b|perplexity|ppl|mse|mae|rmse|wer|cer|fid|nll|bpb|divergence", re.IGNORECASE)
_HIGHER = re.compile(
    r"acc(uracy)?|f1|auc|auroc|score|bleu|rouge|recall|precision|dice|iou|\bmap\b|reward|psnr|ssim|r2|top.?\d",
    re.IGNORECASE,
)
_OF_LAYERS = re.compile(r"(activation|attention|weight|gradient)_\w+/")
"""What `pulsetrain.torch.watch` records of each layer."""


def better(name: str) -> Better:
    """Which values of a metric are the better ones, by its name."""
    if _LOWER.search(name):
        return "lower"
    return "higher" if _HIGHER.search(name) else ""


def in_order_of_interest(names: Iterable[str]) -> list[str]:
    """First what says how good the model is, figures of single layers last; else in the order they came."""
    return sorted(names, key=lambda name: (bool(_OF_LAYERS.match(name)), not better(name)))
