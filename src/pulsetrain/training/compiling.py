"""How long torch.compile compiles: in the first steps, and whenever shapes change."""

from __future__ import annotations

import functools
import time
from typing import Any

from pulsetrain.training.guard import guarded
from pulsetrain.training.spans import note_phase

COMPILING = "compile"


def install(module: Any) -> None:
    """Watch `torch._dynamo.callback`, which runs callbacks at the start and the end of what is compiled.

    Its methods are wrapped: callbacks that are registered are gone after `torch._dynamo.reset()`.
    """
    handler = module.CompilationCallbackHandler
    if hasattr(handler.run_start_callbacks, "pulsetrain_watches"):
        return
    begins: list[float] = []

    @guarded
    def began() -> None:
        begins[:] = [time.perf_counter()]

    @guarded
    def ended() -> None:
        if begins:
            note_phase(COMPILING, begins.pop())

    def wrap(name: str, note: Any) -> None:
        original = getattr(handler, name)

        @functools.wraps(original)
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            note()
            return original(self, *args, **kwargs)

        call.pulsetrain_watches = True  # type: ignore[attr-defined]
        setattr(handler, name, call)

    wrap("run_start_callbacks", began)
    wrap("run_end_callbacks", ended)
