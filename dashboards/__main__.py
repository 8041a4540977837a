"""Write the dashboards that the package ships: `python -m dashboards`, or into another FOLDER."""

import json
import sys
from pathlib import Path

from dashboards import cluster, fleet, host, remote, run

SHIPPED = Path(__file__).parent.parent / "src/pulsetrain/deploy/stack/grafana"
BOARDS = (run, fleet, host, remote, cluster)


def main(folder: Path = SHIPPED) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for module in BOARDS:
        board = module.board()
        text = json.dumps(board.build(), indent=2, sort_keys=True)
        (folder / f"{board.uid}.json").write_text(f"{text}\n")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
