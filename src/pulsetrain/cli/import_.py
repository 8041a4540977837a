"""`pulsetrain import`: runs of other trackers, as ordinary runs."""

import click

from pulsetrain.cli import options


@click.command("import", short_help="Import old runs from TensorBoard, MLflow or Weights & Biases.")
@click.argument("place")
@options.directory
@options.json_output
@options.quiet
def import_(place: str, directory: str | None, as_json: bool, quiet: bool) -> int:
    """Import the runs of a tracker as ordinary runs, for `runs`, `report`, `compare` and `serve`.

    PLACE is tensorboard:FOLDER, mlflow:URI or wandb:FOLDER. A run that was imported before is updated if it has
    changed. Nothing is changed in the tracker.

    \b
        pulsetrain import tensorboard:~/logs
        pulsetrain import mlflow:http://localhost:5000
        pulsetrain import wandb:./wandb
    """
    import msgspec

    from pulsetrain.errors import PulsetrainError
    from pulsetrain.runs.folder import SCHEMA, Home
    from pulsetrain.transfer.trackers import open_old_runs
    from pulsetrain.transfer.trackers.old_run import import_run

    home = Home.find(directory)
    counts = {"imported": 0, "updated": 0, "unchanged": 0}
    for old in open_old_runs(place):
        try:
            folder, outcome = import_run(old, home)
        except PulsetrainError as error:
            click.echo(f"warning: {error}", err=True)
            continue
        counts[outcome] += 1
        if as_json:
            document = {"schema": SCHEMA, "id": folder.name, "folder": str(folder.path), "outcome": outcome}
            click.echo(msgspec.json.encode(document))
        elif not quiet and outcome != "unchanged":
            click.echo(f"{outcome}  {folder.name}")
    if not as_json and not quiet:
        words = ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
        click.echo(words if any(counts.values()) else f"there are no runs in {place}")
    return 0
