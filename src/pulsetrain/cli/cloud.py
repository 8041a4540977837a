"""`pulsetrain cloud`: Google Cloud machines, clusters and training jobs, through gcloud, kubectl and docker."""

import click

from pulsetrain.cli.cloud_cluster import cluster
from pulsetrain.cli.cloud_submit import submit
from pulsetrain.cli.cloud_vm import vm


@click.group(short_help="Create GPU machines and clusters in Google Cloud, and train there.")
def cloud() -> None:
    """Create GPU machines and clusters in Google Cloud, and train on them, watched.

    It uses your own gcloud, kubectl, docker and ssh with their logins. It shows every command that changes something
    and asks before running it; --dry-run only shows them.
    """


cloud.add_command(vm)
cloud.add_command(cluster)
cloud.add_command(submit)
