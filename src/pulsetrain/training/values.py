"""Numbers from what frameworks call a scalar, without ever waiting for a device."""

from __future__ import annotations

import sys
from typing import Any, Callable

DEVICE_READ_SECONDS = 0.1
"""Values that sit on a device are fetched from it this often, and not at every step."""

_WITH_DEVICES = frozenset({"jax", "jaxlib", "tensorflow"})


class Pending:
    """A value that is not known yet, such as one on its way from a GPU."""

    def ready(self) -> bool:
        raise NotImplementedError

    def value(self) -> Any:
        """The number; only asked when ready, or at the very end, when waiting is allowed."""
        raise NotImplementedError


class ComputedValue(Pending):
    """A number from others of which some are on their way."""

    def __init__(self, function: Callable[..., float], *values: Any) -> None:
        self._function = function
        self._values = values

    def ready(self) -> bool:
        return all(value.ready() for value in self._values if isinstance(value, Pending))

    def value(self) -> float:
        return self._function(*(value.value() if isinstance(value, Pending) else value for value in self._values))


class GoneError(Exception):
    """The program deleted a value, or donated it to a computation, before it could be read."""


def number(value: Any, *, own_copy: bool = False) -> Any:
    """A plain number, or a Pending, from what frameworks call a scalar. Raises for everything else.

    With `own_copy`, an array of JAX is copied first, without waiting, so that the program may donate it.
    """
    if isinstance(value, Pending):
        return value
    module = type(value).__module__.partition(".")[0]
    if module == "torch" or hasattr(value, "is_cuda"):
        return _torch_number(value)
    if module == "tensorflow":
        return _tensorflow_number(value)
    if module in ("jax", "jaxlib"):
        return _jax_number(value, own_copy)
    if isinstance(value, (str, bytes)):
        raise TypeError("text")
    return _python_number(value.item() if hasattr(value, "item") else value)


def _python_number(value: Any) -> Any:
    return int(value) if isinstance(value, int) else float(value)


def _torch_number(value: Any) -> Any:
    if value.numel() != 1:
        raise TypeError("%d values" % value.numel())
    if value.device.type == "cpu":
        return _python_number(value.item())
    return _GpuCopy(value.detach())


def _tensorflow_number(value: Any) -> Any:
    if hasattr(value, "read_value"):
        value = value.read_value()  # a variable: what it holds now
    if not hasattr(value, "numpy"):
        raise TypeError("symbolic: log it outside tf.function")
    if value.shape.num_elements() != 1:
        raise TypeError("%d values" % value.shape.num_elements())
    return _DeviceArray(value)


def _jax_number(value: Any, own_copy: bool) -> Any:
    if any(kind.__name__ == "Tracer" for kind in type(value).__mro__):
        raise TypeError("traced: log it outside the compiled function")
    if value.size != 1:
        raise TypeError("%d values" % value.size)
    if value.is_deleted():
        raise TypeError("deleted")
    return _DeviceArray(sys.modules["jax"].device_put(value, may_alias=False) if own_copy else value)


class _DeviceArray(Pending):
    """An array of a framework whose arrays never change: the background thread reads it, and waits where it must.

    JAX's `is_ready` is never asked: it ends the process when the program deletes the array at that moment.
    """

    def __init__(self, array: Any) -> None:
        self._array = array

    def ready(self) -> bool:
        return True

    def value(self) -> Any:
        array = self._array
        try:
            return _python_number(array.numpy().item() if hasattr(array, "numpy") else array.item())
        except RuntimeError:
            if hasattr(array, "is_deleted") and array.is_deleted():
                raise GoneError("it was deleted, or donated to a computation, before it could be read") from None
            raise


class _GpuCopy(Pending):
    """A tensor on a GPU: copied to pinned memory without waiting, read when the copy is done."""

    def __init__(self, tensor: Any) -> None:
        torch = sys.modules["torch"]
        self._copy = torch.empty((), dtype=tensor.dtype, pin_memory=tensor.is_cuda)
        self._copy.copy_(tensor.reshape(()), non_blocking=True)
        self._event = torch.cuda.Event() if tensor.is_cuda else None
        if self._event is not None:
            self._event.record()

    def ready(self) -> bool:
        return self._event is None or bool(self._event.query())

    def value(self) -> Any:
        if self._event is not None:
            self._event.synchronize()
        return self._copy.item()


def captured(value: Any) -> bool:
    """Whether what is done with it now becomes part of a CUDA graph."""
    on_cuda = getattr(value, "is_cuda", False)
    return bool(on_cuda) and bool(sys.modules["torch"].cuda.is_current_stream_capturing())


def _plain(value: Any) -> bool:
    return value is None or type(value) is float or type(value) is int


def without_waiting(value: Any) -> Any:
    """A plain number where no device has to be waited for, else the value as it is; None if it is not one number."""
    if _plain(value):
        return value
    on_cpu = getattr(value, "is_cpu", None)
    if on_cpu is None:  # not torch's
        return value if type(value).__module__.partition(".")[0] in _WITH_DEVICES else float(value)
    if value.is_meta or value.numel() != 1:
        return None
    return value.item() if on_cpu else value.detach()


class ValueReader:
    """Reads values from a device at times, not at every step."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._read_at: dict[str, float] = {}

    def read(self, what: str, value: Any, *, now: bool = False) -> Any:
        """A number, one on its way from a device, or None: when it is too early to fetch the next, if not `now`."""
        value = without_waiting(value)
        if _plain(value):
            return value
        at = self._clock()
        early = at - self._read_at.get(what, float("-inf")) < DEVICE_READ_SECONDS
        if (early and not now) or captured(value):
            return None
        self._read_at[what] = at
        return number(value)
