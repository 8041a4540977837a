"""Run in .venv-trackers: what a tracker has, by its own reader, as JSON. `read_back.py KIND PLACE`.

Rows in the order in which they were written: number or time, step, figures.
"""

import json
import sys
from pathlib import Path
from typing import Any


def tensorboard(place: str) -> Any:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    found = EventAccumulator(place, size_guidance={"scalars": 0})
    found.Reload()
    scalars = {tag: [(event.step, event.value) for event in found.Scalars(tag)] for tag in found.Tags()["scalars"]}
    texts = {tag: found.Tensors(tag)[-1].tensor_proto.string_val[0].decode() for tag in found.Tags()["tensors"]}
    return {"scalars": scalars, "texts": texts}


def wandb(place: str) -> Any:
    from wandb.proto import wandb_internal_pb2

    from pulsetrain.wandb_files import wandb_records

    rows: list[dict[str, Any]] = []
    config: dict[str, Any] = {}
    summary: dict[str, Any] = {}
    for file in sorted(Path(place).rglob("*.wandb")):
        for data in wandb_records(file):
            record = wandb_internal_pb2.Record()
            record.ParseFromString(data)
            if record.history.item:
                rows.append({"/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item})
            config |= {item.key: json.loads(item.value_json) for item in record.run.config.update}
            config |= {item.key: json.loads(item.value_json) for item in record.config.update}
            for item in record.summary.update:
                summary["/".join(item.nested_key) or item.key] = json.loads(item.value_json)
    return {"rows": rows, "config": config, "summary": summary}


def trackio(place: str) -> Any:
    from trackio.sqlite_storage import SQLiteStorage

    (run,) = SQLiteStorage.get_runs(place)
    return {
        "rows": SQLiteStorage.get_logs(place, run),
        "system": SQLiteStorage.get_system_logs(place, run),
        "config": SQLiteStorage.get_run_config(place, run),
    }


def aim(place: str) -> Any:
    from aim import Repo, Run
    from aim.sdk.index_manager import RepoIndexManager

    repo = Repo.from_path(place)
    (known,) = repo.list_all_runs()
    RepoIndexManager(repo).index(known)  # as `aim up` does
    found = Run(known, repo=repo, read_only=True)
    read = {metric.name: metric.data.view(["val", "time"]).items_list() for metric in found.metrics()}
    return {
        "scalars": {name: list(zip(steps, values, strict=True)) for name, (steps, (values, _)) in read.items()},
        "times": {name: times for name, (_, (_, times)) in read.items()},
        "config": found[...],
        "tags": found.tags,
    }


if __name__ == "__main__":
    kind, place = sys.argv[1:]
    readers = {"tensorboard": tensorboard, "wandb": wandb, "trackio": trackio, "aim": aim}
    print(json.dumps(readers[kind](place)))
