"""How long a program waits in collective operations of torch.distributed.

What is seen are the calls that the program itself makes, and its waits for those that run in the background. DDP and
FSDP exchange gradients inside a backward pass, without a call that could be seen: that stays part of the backward pass.
On GPUs such a call returns when the operation is launched, not when it is done.
"""

from __future__ import annotations

import functools
from typing import Any

from pulsetrain.training.spans import Spans, note_part

CALLS = (
    "all_gather",
    "all_gather_coalesced",
    "all_gather_into_tensor",
    "all_gather_object",
    "all_reduce",
    "all_reduce_coalesced",
    "all_to_all",
    "all_to_all_single",
    "barrier",
    "broadcast",
    "broadcast_object_list",
    "gather",
    "gather_object",
    "monitored_barrier",
    "recv",
    "reduce",
    "reduce_scatter",
    "reduce_scatter_tensor",
    "scatter",
    "scatter_object_list",
    "send",
)

_spans = Spans("The watch on collective operations")


def watch_collectives(torch: Any) -> None:
    """Watch the calls of `torch.distributed`. torch.compile, which has its own idea of them, sees the originals."""
    if not torch.distributed.is_available():
        return
    module = torch.distributed.distributed_c10d
    compiling = torch.compiler.is_compiling
    for name in CALLS:
        original = getattr(module, name, None)
        if original is not None:
            watched = _watched(original, compiling)
            setattr(module, name, watched)
            if getattr(torch.distributed, name, None) is original:
                setattr(torch.distributed, name, watched)
    work = torch._C._distributed_c10d.Work
    work.wait = _watched(work.wait, compiling)


def _watched(original: Any, compiling: Any) -> Any:
    timed = _spans.timed(original, note_part, "communication")

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **kwargs) if compiling() else timed(*args, **kwargs)

    return call
