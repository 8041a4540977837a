"""One word for one thing: what a class is called is found once in the package."""

import ast
from collections import defaultdict
from pathlib import Path

PACKAGE = Path(__file__).parents[1] / "src/pulsetrain"


def test_a_public_class_name_exists_once() -> None:
    places = defaultdict(list)
    for file in sorted(PACKAGE.rglob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(str(file.relative_to(PACKAGE)))
    assert len(places) > 100
    assert {name: files for name, files in places.items() if len(files) > 1} == {}
