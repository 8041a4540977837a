"""`pulsetrain cloud`: Google Cloud machines, clusters and training jobs, through gcloud, kubectl and docker."""

import click

from pulsetrain.cli.cloud_cluster import cluster
from pulsetrain.cli.cloud_submit import submit
from pulsetrain.cli.cloud_vm import vm


@click.group(short_help="Create GPU machines and clusters in Google Cloud, and train there.")
def cloud() -> None:
    """GPU machines and clusters of Google Cloud, from nothing to a watched training.

    It runs the gcloud, kubectl, docker and ssh that you have signed in, and shows each command that changes something
    before it asks whether to run it. --dry-run only shows them.
    """


cloud.add_command(vm)
cloud.add_command(cluster)
cloud.add_command(submit)
