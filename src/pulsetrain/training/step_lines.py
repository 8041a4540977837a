"""The line that is recorded of a step."""

from __future__ import annotations

import time
from collections.abc import Hashable
from typing import Any, Callable

from pulsetrain.training.amounts import Amounts
from pulsetrain.training.batches import BatchTracker
from pulsetrain.training.recorder import Recorder
from pulsetrain.training.tally import StepTally
from pulsetrain.training.timing import StepTiming

_PARTS = (
    ',"step":%d,"step_seconds":%.12g,"forward_seconds":%.12g,"backward_seconds":%.12g,"accumulation":1,'
    '"optimizer_seconds":%.12g,"optimizers":1,"other_seconds":%.12g,'
    '"memory_allocated_mb":null,"memory_reserved_mb":null'
)
_DATA_WAIT = ',"data_wait_seconds":%.12g'
_SAMPLES = ',"samples":%d,"throughput_samples_per_sec":%.12g'
_NO_SAMPLES = ',"throughput_samples_per_sec":null'
_TOKENS = ',"tokens":%d,"throughput_tokens_per_sec":%.12g'
_PADDING = ',"padding_tokens":%d'
_FLOPS = ',"flops":%.12g,"mfu_ratio":%.12g'
_EPOCH, _NO_EPOCH = ',"epoch":%.12g', ',"epoch":null'
_LEARNING_RATE, _NO_LEARNING_RATE = ',"learning_rate":%.12g', ',"learning_rate":null'
_GRADIENT_NORM, _NO_GRADIENT_NORM = ',"gradient_norm":%.12g', ',"gradient_norm":null'
_LOSS, _NO_LOSS = ',"loss":%.12g', ',"loss":null'
_MOST_LINES = _PARTS + _DATA_WAIT + _SAMPLES + _EPOCH + _LEARNING_RATE + _NO_GRADIENT_NORM + _LOSS
"""What the lines of nearly all steps consist of, in a loop over a data loader."""


class StepLines:
    """Collects what is reported for a step beside its time, and records the step when it is over."""

    def __init__(
        self, recorder: Recorder, clock: Callable[[], float], timing: StepTiming, batches: BatchTracker
    ) -> None:
        self.recorder = recorder
        self._clock = clock
        self._timing = timing
        self._batches = batches
        self.step = 0
        """Number of the last step that was recorded."""
        self.recorded = False
        """Whether any was."""
        self.phase: str | None = None
        """The phase that the program is in."""
        self._total_steps: int | None = None
        self._flops: ExpectedFlops | None = None

    # Events

    def add_gradient_norm(self, now: float, value: Any, key: Hashable) -> None:
        """The norm of some gradients; with a `key`, of those of one optimizer, and worth nothing without the others."""
        tally = self._timing.tally
        tally.add_gradient_norm(value)
        if key is not None:
            tally.normed = tally.normed | {key}

    def report(self, now: float, fields: dict[str, Any]) -> None:
        """Further fields for the line of this step."""
        self._timing.tally.add_fields(fields)

    def set_total_steps(self, now: float, count: int | None) -> None:
        self._total_steps = count

    def expect_flops(self, now: float, flops: ExpectedFlops) -> None:
        """From now on lines say how much of what the device could compute is used."""
        self._flops = flops

    # Lines

    def add(self, at: float, fields: dict[str, Any]) -> None:
        """Record a line of the time `at`, which may be a little ago."""
        self.recorder.add(fields, lambda: time.monotonic() - (self._clock() - at))

    def record(
        self, tally: StepTally, updates: set[Hashable], losses: dict[str, Any], end: float, number: int | None
    ) -> None:
        """A step of these updates is over; it has the next number unless another is given."""
        timing = self._timing
        seconds = end - (end if timing.since is None else timing.since)
        timing.since = end
        self.recorded = True
        self.step = number = self.step + 1 if number is None else number
        fields: dict[str, Any] = {"step": number, "step_seconds": seconds}
        other = seconds
        if self._batches.used:
            fields["data_wait_seconds"] = tally.data_wait
            other -= tally.data_wait
        if tally.backwards:
            fields["forward_seconds"] = tally.forward
            fields["backward_seconds"] = tally.backward
            fields["accumulation"] = tally.backwards
            other -= tally.forward + tally.backward
        if tally.updates:
            fields["optimizer_seconds"] = tally.optimizer
            fields["optimizers"] = tally.updates
            other -= tally.optimizer
        for name, aside in tally.asides.items():
            fields[name + "_seconds"] = aside
            other -= aside
        fields["other_seconds"] = other if other > 0.0 else 0.0  # below 0 only by the rounding of sums
        self._add_amounts(fields, tally, seconds)
        self._add_values(fields, tally, updates)
        fields.update(losses)
        if tally.extra:
            fields.update(tally.extra)
        if self.phase is not None:
            fields["phase"] = self.phase
        self.add(end, fields)

    @property
    def is_regular(self) -> bool:
        """Whether lines have no more in them than `record_regular` writes."""
        return self.recorded and self.phase is None and self._total_steps is None

    def record_regular(
        self,
        at: float,
        parts: tuple[float, float | None, float, float, float],
        amounts: Amounts,
        epoch: float | None,
        learning_rate: float | None,
        gradient_norm: float | None,
        loss: float | None,
    ) -> None:
        """A step of one backward pass and one update, of which everything is known, ended at this monotonic time.

        `parts` are its seconds, and those of data wait, forward, backward and optimizer. Its line is that of `record`,
        written without the detour of a dictionary.
        """
        seconds, data_wait, forward, backward, optimizer = parts
        samples, tokens, padding = amounts
        self.step = number = self.step + 1
        other = seconds - (data_wait or 0.0) - (forward + backward) - optimizer
        times = (number, seconds, forward, backward, optimizer, other if other > 0.0 else 0.0)
        has_most = epoch is not None and loss is not None and learning_rate is not None and data_wait is not None
        if has_most and samples is not None and tokens is None and gradient_norm is None and self._flops is None:
            rest = (data_wait, samples, samples / seconds, epoch, learning_rate, loss)
            self.recorder.add_text(at, _MOST_LINES % (*times, *rest))  # in one piece
            return
        text = _PARTS % times
        if data_wait is not None:
            text += _DATA_WAIT % data_wait
        text += _NO_SAMPLES if samples is None else _SAMPLES % (samples, samples / seconds)
        if tokens is not None:
            text += _TOKENS % (tokens, tokens / seconds)
        if padding is not None:
            text += _PADDING % padding
        if self._flops is not None:
            flops = self._flops.of_step(samples, tokens)
            if flops is not None:
                text += _FLOPS % (flops, flops / seconds / self._flops.peak_per_sec)
        text += _NO_EPOCH if epoch is None else _EPOCH % epoch
        text += _NO_LEARNING_RATE if learning_rate is None else _LEARNING_RATE % learning_rate
        text += _NO_GRADIENT_NORM if gradient_norm is None else _GRADIENT_NORM % gradient_norm
        text += _NO_LOSS if loss is None else _LOSS % loss
        self.recorder.add_text(at, text)

    def _add_amounts(self, fields: dict[str, Any], tally: StepTally, seconds: float) -> None:
        samples, tokens, padding = tally.samples, tally.tokens, tally.padding
        if not tally.batches and self._batches.last_amounts is not None:
            samples, tokens, padding = self._batches.last_amounts  # one more step on the batch of the step before
        if seconds <= 0.0:
            return
        if samples is not None:
            fields["samples"] = samples
            fields["throughput_samples_per_sec"] = samples / seconds
        if tokens is not None:
            fields["tokens"] = tokens
            fields["throughput_tokens_per_sec"] = tokens / seconds
        if padding is not None:
            fields["padding_tokens"] = padding
        epoch = tally.epoch if tally.batches else self._batches.epoch
        if epoch is not None:
            fields["epoch"] = epoch
        if self._flops is not None:
            flops = self._flops.of_step(samples, tokens)
            if flops is not None:
                fields["flops"] = flops
                fields["mfu_ratio"] = flops / seconds / self._flops.peak_per_sec

    def _add_values(self, fields: dict[str, Any], tally: StepTally, updates: set[Hashable]) -> None:
        if tally.learning_rate is not None:
            fields["learning_rate"] = tally.learning_rate
        if tally.gradient_norm is not None and tally.normed in (frozenset(), updates):
            fields["gradient_norm"] = tally.gradient_norm
        if self._total_steps is not None:
            fields["total_steps"] = self._total_steps
        if tally.skipped:
            fields["skipped"] = tally.skipped


class ExpectedFlops:
    """What a step computes, by one of three measures, and what the device could compute in a second."""

    def __init__(
        self,
        peak_per_sec: float,
        *,
        per_token: float | None = None,
        per_sample: float | None = None,
        per_step: float | None = None,
    ) -> None:
        self.peak_per_sec = peak_per_sec
        self._per_token, self._per_sample, self._per_step = per_token, per_sample, per_step

    def of_step(self, samples: int | None, tokens: int | None) -> float | None:
        """None when the measure needs an amount that is not known."""
        if self._per_token is not None:
            return None if tokens is None else self._per_token * tokens
        if self._per_sample is not None:
            return None if samples is None else self._per_sample * samples
        return self._per_step
