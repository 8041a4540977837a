"""What tells the subjects of an expression apart: sets of labels, as Prometheus has them."""

from collections.abc import Iterable, Mapping
from weakref import WeakValueDictionary

Items = tuple[tuple[str, str], ...]


class LabelSet:
    """Names and values, made once: two sets of the same content are the same object, and so cheap keys of vectors."""

    __slots__ = ("__weakref__", "_larger", "_others", "_parts", "items", "mapping")

    def __init__(self, items: Items) -> None:
        """Use `of`: only it knows the set that is there already."""
        self.items = items
        self.mapping: Mapping[str, str] = dict(items)
        self._parts: dict[tuple[str, ...], LabelSet] = {}
        self._others: dict[tuple[str, ...], LabelSet] = {}
        self._larger: dict[tuple[str, str], LabelSet] = {}

    @classmethod
    def of(cls, labels: Mapping[str, str]) -> "LabelSet":
        """The set of these labels. An empty value is no label."""
        return cls._of(item for item in labels.items() if item[1])

    @classmethod
    def _of(cls, labels: Iterable[tuple[str, str]]) -> "LabelSet":
        items = tuple(sorted(labels))
        found = _MADE.get(items)
        if found is None:
            found = _MADE[items] = cls(items)
        return found

    def only(self, names: tuple[str, ...]) -> "LabelSet":
        """Those of these names that there are."""
        found = self._parts.get(names)
        if found is None:
            found = self._parts[names] = self._of(item for item in self.items if item[0] in names)
        return found

    def without(self, names: tuple[str, ...]) -> "LabelSet":
        """All but those."""
        found = self._others.get(names)
        if found is None:
            found = self._others[names] = self._of(item for item in self.items if item[0] not in names)
        return found

    def having(self, name: str, value: str) -> "LabelSet":
        """With one more."""
        found = self._larger.get((name, value))
        if found is None:
            found = self._larger[name, value] = self.of({**self.mapping, name: value})
        return found

    def adding(self, other: "LabelSet") -> "LabelSet":
        """With the labels of the other, which win."""
        return self.of({**self.mapping, **other.mapping})

    def __repr__(self) -> str:
        return "{" + ", ".join(f'{name}="{value}"' for name, value in self.items) + "}"


_MADE: WeakValueDictionary[Items, LabelSet] = WeakValueDictionary()
"""The sets that somebody holds."""

Vector = Mapping[LabelSet, float]
"""A value for each subject."""
NOBODY: Vector = {}
