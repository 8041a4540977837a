"""`pulsetrain cache serve`: a cache for sharded datasets, for a machine or a cluster."""

from pathlib import Path

import click

from pulsetrain.cli import options
from pulsetrain.errors import PulsetrainError

_LOOK_SECONDS = 0.5


@click.group(short_help="Cache dataset shards close to the machines that train on them.")
def cache() -> None:
    """A cache of dataset shards in front of the server that stores them. Needs nginx."""


@cache.command()
@click.argument("upstream", metavar="URL")
@click.option(
    "--cache-dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="FOLDER",
    help="Where shards are kept. [default: $PULSETRAIN_HOME/cache; for root, /var/cache/pulsetrain]",
)
@click.option(
    "--size",
    type=click.FloatRange(0.01, 1e6),
    default=100.0,
    show_default=True,
    metavar="GB",
    help="Maximum disk space to use; the least recently used shards are removed first.",
)
@click.option("--host", "address", default="127.0.0.1", show_default=True, metavar="IP", help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=8080, show_default=True, help="Port to listen on.")
@click.option(
    "--allow",
    multiple=True,
    metavar="NETWORK",
    help="Network allowed to use the cache besides this machine, such as 10.0.0.0/8; may be repeated.",
)
@click.option(
    "--prometheus-port",
    type=click.IntRange(0, 65535),
    metavar="PORT",
    help="Serve /metrics for Prometheus on this port; 0 picks a free one and prints it.",
)
@click.option(
    "--prometheus-address",
    default="127.0.0.1",
    show_default=True,
    metavar="ADDRESS",
    help="Address to listen on for Prometheus.",
)
@options.quiet
def serve(
    upstream: str,
    folder: Path | None,
    size: float,
    address: str,
    port: int,
    allow: tuple[str, ...],
    prometheus_port: int | None,
    prometheus_address: str,
    quiet: bool,
) -> None:
    """Serve the files below URL and keep copies of them. Shards must never change: a new version needs a new name.

    Read http://THIS:8080/shard-000000.tar instead of URL/shard-000000.tar in your training. By default, only this
    machine may use the cache.

    \b
        pulsetrain cache serve https://storage.googleapis.com/my-bucket
        pulsetrain cache serve https://data.example/imagenet --host 0.0.0.0 --allow 10.0.0.0/8 --size 500
    """
    from pulsetrain.cli.messages import to_terminal
    from pulsetrain.cli.stopping import stop_on_signals
    from pulsetrain.deploy.cache.server import CacheServer
    from pulsetrain.deploy.cache.settings import CacheSettings, default_folder
    from pulsetrain.runs.folder import Home, host_name

    where = (folder or default_folder(Home.find().path.parent)).absolute()
    settings = CacheSettings(
        upstream=upstream, folder=where, gigabytes=size, address=address, port=port, networks=allow
    )
    server = CacheServer(settings, host_name())
    notices = [f"caching {upstream} at {server.url}, up to {size:g} GB in {where}"]
    if prometheus_port is not None:
        notices.append(f"metrics for Prometheus at {server.serve_metrics(prometheus_address, prometheus_port)}/metrics")
    stop = stop_on_signals()
    server.start()
    if not quiet:
        to_terminal([*notices, "stop with Ctrl-C"])
    try:
        while not stop.wait(_LOOK_SECONDS):
            if (code := server.ended()) is not None:
                raise PulsetrainError(f"nginx exited with code {code}; see its messages above.")
    finally:
        server.close()
