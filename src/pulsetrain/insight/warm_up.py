"""The warm-up of a training: how many of its first steps say nothing about its speed. For reports and live."""

import math

WARM_UP_SHARE = 0.05
WARM_UP_STEPS = (10, 100)
"""At least, and at most: what warms up is warm by then, however long the run."""
LEAST_STEPS = 20
"""With fewer after the warm-up, nothing can be distinguished from noise."""


def warm_up_steps(count: int) -> int:
    """How many of so many steps are the warm-up; none where too few would remain."""
    least, most = WARM_UP_STEPS
    warm_up = min(most, max(least, math.ceil(WARM_UP_SHARE * count)))
    return warm_up if count - warm_up >= LEAST_STEPS else 0
