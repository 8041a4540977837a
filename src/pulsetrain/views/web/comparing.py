"""Runs side by side as a document: the words and figures of `pulsetrain compare`, and the settings that differ."""

from collections.abc import Sequence
from typing import Any

from pulsetrain.insight.compare import compare
from pulsetrain.insight.compare.sides import load_sides
from pulsetrain.views.compare.cells import LEGEND, about, cells
from pulsetrain.views.compare.content import document
from pulsetrain.views.web.api import NotFound, run_summary
from pulsetrain.views.web.site import Site

Document = dict[str, Any]


def compare_document(site: Site, ids: Sequence[str]) -> Document:
    """These runs, the first of them as the base."""
    folders = []
    for id in dict.fromkeys(ids):
        folder = site.folder(id)
        if folder is None:
            raise NotFound(f"there is no run {id!r}.")
        folders.append(folder)
    sides = load_sides(folders, site.thresholds)
    comparison = document(compare(sides, site.thresholds))
    return {
        "runs": [
            run_summary(folder.path.name, side.report.run) | {"label": side.label, "about": about(run)}
            for folder, side, run in zip(folders, sides, comparison.runs, strict=True)
        ],
        "verdicts": comparison.verdicts,
        "explanations": comparison.explanations,
        "figures": [
            {"section": figure.section, "name": figure.name, "how": figure.how, "cells": cells(figure)}
            for figure in comparison.figures
        ],
        "notes": comparison.notes,
        "legend": LEGEND,
        "ledgers": [side.report.ledger for side in sides],
        "settings": comparison.settings,
    }
