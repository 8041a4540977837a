"""`pulsetrain demo`: a small real training, watched, on simulated GPUs."""

import shlex
import shutil
import sys
from pathlib import Path

import click

from pulsetrain.cli import options

NEXT = """
What to try next:
  {0} report                     this run in full; --html for charts
  {0} top last                   its dashboard; q quits
  {0} runs                       all recorded runs
  {0} doctor                     what works here, and what is missing
  {0} run -- python train.py     your own training
A second run, side by side with this one:
  {0} demo && {0} compare {1} last
"""


@click.command(short_help="Take a tour on simulated GPUs.")
@click.option(
    "--seconds", type=click.FloatRange(1.0, 600.0), default=20.0, show_default=True, help="Length of the training."
)
@options.directory
def demo(seconds: float, directory: str | None) -> int:
    """Train a small network on the CPU for about 20 seconds and watch it, with two simulated GPUs."""
    from pulsetrain.cli.run import run_watched
    from pulsetrain.runs.folder import Home
    from pulsetrain.sources import Options
    from pulsetrain.watching.options import WatchOptions

    # -P: the working folder may be anybody's, and its modules are none of ours.
    command = (sys.executable, "-P", "-m", "pulsetrain.demo.train", "--seconds", f"{seconds:g}")
    click.echo("The training is real and runs on your CPU; the GPUs are simulated. To do the same by hand:")
    click.echo(f"  {_this_command()} run --simulate 2xL4 --name demo -- {shlex.join(command)}\n")
    watching = WatchOptions(sources=Options(simulate="2xL4"), name="demo", directory=directory)
    code = run_watched(command, watching)
    if code == 0:
        click.echo(NEXT.format(_this_command(), Home.find(directory).resolve("last").name))
    return code


def _this_command() -> str:
    """How to call this pulsetrain from a shell: by its path, where the shell would not find it or find another."""
    here = Path(sys.argv[0])
    if here.name != "pulsetrain":
        return f"{shlex.quote(sys.executable)} -m pulsetrain"
    found = shutil.which("pulsetrain")
    return "pulsetrain" if found and Path(found).samefile(here) else shlex.quote(str(here))
