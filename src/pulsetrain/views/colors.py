"""The colors of lines and of the classes of time, for light and dark ground, declared once for pictures and pages."""

# Okabe and Ito's colors, which people see apart whatever their eyes, darker or lighter for their ground.
LIGHT = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#5c5c5c", "#a89a00")
DARK = ("#4ba3db", "#f2844b", "#2fc79a", "#e39cc6", "#f2b632", "#8ccff7", "#b8b8b8", "#e6db5a")

_BLUE, _ORANGE, _GREEN, _PINK, _AMBER, _SKY, _GRAY, _OLIVE = zip(LIGHT, DARK, strict=True)

TIME_CLASS_COLORS: dict[str, tuple[str, str]] = {
    "startup": _GRAY,
    "compile": _PINK,
    "warm_up": _OLIVE,
    "data_wait": _ORANGE,
    "copy": ("#b3541e", "#c9704a"),
    "forward": _GREEN,
    "backward": ("#00735a", "#1f9c7c"),
    "optimizer": ("#5fbf9f", "#8fdcc4"),
    "compute": _GREEN,
    "communication": _BLUE,
    "checkpoint": _AMBER,
    "evaluation": _SKY,
    "logging": ("#8a6d3b", "#b59a68"),
    "garbage_collection": ("#7b3294", "#b57fc9"),
    "stall": ("#b42318", "#ff7b72"),
    "restart": ("#7a271a", "#c4554a"),
    "lost_work": ("#912018", "#e0655c"),
    "tail": ("#8c959f", "#7d8894"),
    "unknown": ("#c4cbd2", "#4a545f"),
}
"""Light and dark. Time that trains is green; what is lost is red; waiting stands out."""
