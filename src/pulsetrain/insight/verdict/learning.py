"""What was learned: losses, gradients and validation, without thresholds that fit one model only."""

from collections.abc import Iterator

import numpy as np

from pulsetrain.insight.learning import Course
from pulsetrain.insight.robust import deviation
from pulsetrain.insight.verdict.case import Case, Judged, seen

SPIKE_WINDOW = 20
"""Reports before a spike that say what is usual."""
LEAST_EVALUATIONS = 4
LEAST_NORMS, NORM_WINDOW = 10, 5
USUAL_QUANTILE = 0.9
"""Of the norms so far: what is usual."""
LEAST_SHARE_LOST = 0.1
"""Of what a validation loss fell at first, it must lose again."""


def non_finite(case: Case) -> Iterator[Judged]:
    losses = [bad for bad in case.facts.learning.not_finite if bad.field == "loss"]
    gradients = [bad for bad in case.facts.learning.not_finite if bad.field == "gradient_norm"]
    count = case.steps.total if case.steps else 0
    if losses:
        found, bad = losses, losses[0]
    elif gradients and max(bad.count for bad in gradients) > case.limits.nonfinite_gradient_ratio * max(count, 1):
        found, bad = gradients, gradients[0]
    else:
        return
    lost = case.seconds - bad.seconds if any(one.last for one in found) else None
    yield Judged(
        tuple(
            seen("not_finite_reports", one.count, "reports", start=one.seconds, rank=one.rank, field=one.field)
            for one in found
        ),
        seconds=lost,
        severity="critical" if losses else "warning",
        words={
            "what": "loss" if losses else "gradient norm",
            "step": float(bad.step),
            "ranks": f", on {len(found)} ranks" if len(found) > 1 else "",
        },
        saved_share=lost / case.seconds if lost and case.seconds else None,
    )


def loss_spike(case: Case) -> Iterator[Judged]:
    loss, limits = case.facts.learning.loss, case.limits
    values = loss.values
    if len(values) < 2 * SPIKE_WINDOW or (values <= 0).any():
        return
    windows = np.lib.stride_tricks.sliding_window_view(np.log(values), SPIKE_WINDOW)[:-1]
    middle = np.median(windows, axis=1)
    spread = 1.4826 * np.median(np.abs(windows - middle[:, None]), axis=1)
    above = np.log(values[SPIKE_WINDOW:]) - middle
    spikes = (above > np.log(limits.loss_spike_ratio)) & (
        above > limits.loss_spike_deviations * np.maximum(spread, 0.02)
    )
    places = np.flatnonzero(spikes)
    if not len(places):
        return
    worst = int(places[np.argmax(above[places])])
    place = worst + SPIKE_WINDOW
    after = values[place + 1 : place + 1 + SPIKE_WINDOW]
    usual = float(np.exp(middle[worst]))
    stayed = len(after) == SPIKE_WINDOW and float(np.median(after)) > limits.loss_spike_ratio * usual
    apart = 1 + int((np.diff(places) > SPIKE_WINDOW).sum())
    ratio = float(np.exp(above[worst]))
    yield Judged(
        (
            seen("spike_ratio", ratio, "ratio", threshold=limits.loss_spike_ratio, start=loss.seconds[place]),
            seen("spikes", apart, ""),
        ),
        severity="warning" if stayed else "info",
        words={
            "step": float(loss.steps[place]),
            "and_more": f", and spiked {apart - 1} more time{'s' if apart > 2 else ''}" if apart > 1 else "",
        },
    )


def loss_not_decreasing(case: Case) -> Iterator[Judged]:
    loss, limits = case.facts.learning.loss, case.limits
    values = loss.values
    if len(values) < limits.loss_reports:
        return
    tenth = max(5, len(values) // 10)
    smooth = np.array([part.mean() for part in np.array_split(values, max(5, len(values) // tenth))])
    first, last, lowest = float(values[:tenth].mean()), float(values[-tenth:].mean()), float(smooth.min())
    error = float(np.hypot(values[:tenth].std(ddof=1), values[-tenth:].std(ddof=1)) / np.sqrt(tenth))
    size = abs(first)
    never_fell = first - last < max(limits.loss_fall_ratio * size, 2 * error)
    rose = last - lowest > max(limits.loss_rise_ratio * abs(lowest), 4 * error) and last > lowest
    if not (never_fell or rose):
        return
    place = int(np.argmin(smooth)) if rose else 0
    since = float(loss.seconds[min(len(values) - 1, place * len(values) // len(smooth))])
    lost = float(loss.seconds[-1]) - since
    yield Judged(
        (
            seen("first_loss", first),
            seen("last_loss", last),
            seen("lowest_loss", lowest),
            seen("standard_error", error),
        ),
        seconds=lost,
        confidence="high" if len(values) >= 4 * limits.loss_reports else "medium",
        words={"course": "rose again after it had fallen" if rose and first - lowest > 2 * error else "does not fall"},
    )


def gradient_explosion(case: Case) -> Iterator[Judged]:
    norms, limits = case.facts.learning.gradient_norm, case.limits
    if len(norms.values) < LEAST_NORMS + NORM_WINDOW:
        return
    # Norms of small batches jump: what lasts for a few reports counts, against all that came before.
    smooth = np.median(np.lib.stride_tricks.sliding_window_view(norms.values, NORM_WINDOW), axis=1)
    high = smooth > limits.exploding_gradient_norm
    if not high.any():
        return
    exploded = [
        place
        for place in range(LEAST_NORMS, len(smooth))
        if high[place] and smooth[place] > limits.gradient_rise_ratio * np.quantile(smooth[:place], USUAL_QUANTILE)
    ]
    peak = int(np.argmax(smooth))
    before = float(np.quantile(smooth[: max(1, exploded[0])] if exploded else smooth, USUAL_QUANTILE))
    first = exploded[0] if exploded else int(np.flatnonzero(high)[0])
    yield Judged(
        (
            seen(
                "gradient_norm_peak", smooth[peak], threshold=limits.exploding_gradient_norm, start=norms.seconds[first]
            ),
            seen("rise_ratio", smooth[peak] / max(before, 1e-12), threshold=limits.gradient_rise_ratio),
            seen("exploded_reports", len(exploded), "reports"),
        ),
        severity="warning" if exploded else "info",
        confidence="high" if len(exploded) >= NORM_WINDOW else "medium",
        words={"step": float(norms.steps[first])},
    )


def vanishing_gradient(case: Case) -> Iterator[Judged]:
    norms, limit = case.facts.learning.gradient_norm, case.limits.vanishing_gradient_norm
    later = norms.values[len(norms.values) // 2 :]
    if len(later) < LEAST_NORMS // 2 or float(np.median(later)) >= limit:
        return
    since = float(norms.seconds[len(norms.values) // 2])
    yield Judged(
        (seen("gradient_norm", np.median(later), threshold=limit, start=since),),
        seconds=float(norms.seconds[-1]) - since,
    )


def overfit(case: Case) -> Iterator[Judged]:
    limit = case.limits.overfit_rise_ratio
    for course in case.facts.learning.validation:
        values = course.values
        if len(values) < LEAST_EVALUATIONS:
            continue
        best = int(np.argmin(values))
        after = values[best + 1 :]
        if len(after) < 2 or values[best] <= 0:
            continue
        rise = float(np.median(after[-2:])) / float(values[best]) - 1
        noise = deviation(np.diff(values))
        lost = rise * values[best] > LEAST_SHARE_LOST * (values[0] - values[best])
        if rise > limit and lost and rise * values[best] > 2 * noise and _train_loss_fell(case, course, best):
            since = float(course.seconds[best])
            yield Judged(
                (
                    seen("rise_ratio", rise, "ratio", threshold=limit, start=since),
                    seen("best_validation_loss", values[best], end=since),
                    seen("last_validation_loss", values[-1]),
                ),
                seconds=float(course.seconds[-1]) - since,
                confidence="high" if len(after) > 2 else "medium",
                words={"metric": course.name, "step": float(course.steps[best])},
            )
            return


def _train_loss_fell(case: Case, course: Course, best: int) -> bool:
    loss = case.facts.learning.loss
    before = loss.values[loss.seconds <= course.seconds[best]]
    after = loss.values[loss.seconds > course.seconds[best]]
    if len(before) < 2 or len(after) < 2:
        return False
    around = max(1, len(after) // 4)
    return float(np.mean(after[-around:])) < float(np.mean(before[-around:]))


def padding_waste(case: Case) -> Iterator[Judged]:
    share, limit = case.facts.learning.padding_share, case.limits.padding_ratio
    if share is not None and share > limit:
        compute = case.training_share("forward", "backward", "compute")
        yield Judged(
            (seen("padding_share", share, "ratio", threshold=limit),),
            seconds=share * compute * case.training_seconds if compute is not None else None,
            confidence="medium",
            saved_share=share * compute * case.training_seconds / case.seconds
            if compute is not None and case.seconds
            else None,
        )
