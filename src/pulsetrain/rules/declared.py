"""Every rule, by topic. A new one is declared in the file of its topic."""

from pulsetrain.errors import did_you_mean
from pulsetrain.rules import bottlenecks, budget, learning, machine, training, waste, watching
from pulsetrain.rules.rule import DeclaredRule, Rule

RULES: tuple[Rule, ...] = (*machine.RULES, *waste.RULES, *training.RULES, *budget.RULES, *watching.RULES)
"""Those that are evaluated live."""
RECORD_RULES: dict[str, DeclaredRule] = {
    rule.name: rule
    for rule in (
        *bottlenecks.RULES,
        *training.RULES,
        *learning.RULES,
        *waste.RECORD_RULES,
        *waste.RULES,
        *machine.RULES,
    )
    if rule.on_record
}
"""Those that are judged on recorded runs, by name."""
NAMES = frozenset(rule.name for rule in RULES) | RECORD_RULES.keys()


def unknown_rule_hint(name: str) -> str:
    """The rules that a typo may have meant, and where all of them are."""
    return f"{did_you_mean(name, NAMES)}All rules: docs/alerts.md and docs/verdict.md."
