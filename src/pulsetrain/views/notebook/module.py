"""The charts of the web page as one JavaScript module for a notebook, put together from the files of the page."""

import json
import re
from importlib.resources import files

MODULES = ("format", "dom", "axis", "band", "chart", "charts")
"""Of the page, each after those that it imports."""

_IMPORT = re.compile(r'^import (\{[^}]*\}) from "\./(\w+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?=(?:async )?(?:function|class|const) (\w+))", re.MULTILINE)
_DARK = re.compile(r"@media \(prefers-color-scheme: dark\) \{\s*:root (\{[^}]*\})\s*\}")


def widget_module() -> str:
    """What anywidget takes as `_esm`. A module of the page becomes a function, so that each keeps its names."""
    page = files("pulsetrain.views.web").joinpath("static")
    ours = files(__package__).joinpath("widget.js").read_text("utf-8")
    parts = [page.joinpath("uPlot.iife.min.js").read_text("utf-8")]
    parts += [_as_function(name, page.joinpath(f"{name}.js").read_text("utf-8")) for name in MODULES]
    styles = page.joinpath("uPlot.min.css").read_text("utf-8") + _scoped(page.joinpath("style.css").read_text("utf-8"))
    return "\n".join([*parts, f"const STYLES = {json.dumps(styles)};", _with_names(ours)])


def _as_function(name: str, source: str) -> str:
    names = _EXPORT.findall(source)
    body = _with_names(_EXPORT.sub("", source))
    return f"const module_{name} = (() => {{\n{body}\nreturn {{ {', '.join(names)} }};\n}})();"


def _with_names(source: str) -> str:
    """What a module imports, as names of what is above it."""
    return _IMPORT.sub(r"const \1 = module_\2;", source)


def _scoped(styles: str) -> str:
    """The styles of the page for a shadow root: they touch nothing of the notebook, which has a theme of its own."""
    styles = _DARK.sub(r":host(.dark) \1", styles)
    return re.sub(r"^(:root|body)(?= \{)", ":host", styles, flags=re.MULTILINE)
