"""What a finding cost, and what following its advice may gain: time, energy, emissions and money."""

from pulsetrain.insight.verdict.case import Case, Judged
from pulsetrain.rules.finding import FindingCost
from pulsetrain.rules.text import amount_text, share_text, time_text
from pulsetrain.units import SECONDS_PER_DAY

WORTH_SAYING = 0.02
"""A smaller gain is not worth a sentence."""


def finding_cost(case: Case, judged: Judged) -> FindingCost:
    """By the class of the ledger, else by the share of the run's time."""
    time = case.ledger.classes.get(judged.ledger_class) if case.ledger and judged.ledger_class else None
    if time is not None:
        # The ledger adds up all ranks: of the run's own time it is the same share.
        return FindingCost(seconds=time.share * case.seconds, joules=time.joules, grams=time.grams, money=time.money)
    if judged.seconds is None or case.seconds <= 0:
        return FindingCost(seconds=judged.seconds)
    share = min(1.0, judged.seconds / case.seconds)
    total, carbon, cost = case.energy.total, case.carbon, case.cost
    return FindingCost(
        seconds=judged.seconds,
        joules=share * total.joules if total else None,
        grams=share * carbon.grams if carbon else None,
        money=share * cost.amount if cost else None,
    )


def matters(case: Case, judged: Judged) -> bool:
    """Whether it costs enough of the run for a warning; also where its cost, or the run's time, is not known."""
    seconds, limits = finding_cost(case, judged).seconds, case.limits
    return (
        seconds is None
        or case.seconds <= 0
        or seconds >= max(limits.least_cost_seconds, limits.least_cost_ratio * case.seconds)
    )


def expected_gain(case: Case, judged: Judged) -> str:
    """At most, and for a day of such runs: `That would save up to 38 % of the time, about 9.1 h and 21 USD a day.`"""
    share = judged.saved_share
    if share is None or share < WORTH_SAYING:
        return ""
    day = time_text(share * SECONDS_PER_DAY)
    if case.cost and case.seconds > 0:
        amount = share * case.cost.amount / case.seconds * SECONDS_PER_DAY
        currency = f" {case.cost.currency}" if case.cost.currency else ""
        day += f" and {amount_text(amount)}{currency}"
    return f"That would save up to {share_text(share)} of the time, about {day} a day."
