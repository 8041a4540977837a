"""How long we look for what breaks: a few fixed examples in `make test`, many random ones in `make fuzz`."""

import os

from hypothesis import HealthCheck, Phase, settings

TIMES = int(os.environ.get("PULSETRAIN_FUZZ_TIMES", "1"))
"""How many times more examples than in `make test`."""
HANG_SECONDS = 300
"""For one reader or one connection: a thousand times what it takes."""


def fuzz(examples: int) -> settings:
    """Settings of a target that looks at so many examples in `make test`."""
    return settings(
        max_examples=examples * TIMES,
        derandomize=TIMES == 1,
        database=None,
        # To shrink what was found takes minutes, and shows little: each reader names itself.
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
    )
