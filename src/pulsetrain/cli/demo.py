"""`pulsetrain demo`: a small real training, watched, on simulated GPUs."""

import sys

import click

from pulsetrain.cli import options

NEXT = """
What to try next:
  pulsetrain runs                        the recorded runs
  pulsetrain report                      this one again, in full; --html for charts
  pulsetrain sample                      this machine now
  pulsetrain watch                       this machine, live
  pulsetrain doctor                      what works here and what is missing
  pulsetrain run -- python train.py      your own training
"""


@click.command(short_help="Take a tour on simulated GPUs.")
@click.option(
    "--seconds", type=click.FloatRange(1.0, 600.0), default=20.0, show_default=True, help="Length of the training."
)
@options.directory
@click.pass_context
def demo(ctx: click.Context, seconds: float, directory: str | None) -> int:
    """Train a small network on the CPU for about 20 seconds, watched, with two simulated GPUs beside it."""
    from pulsetrain.cli.run import run

    command = (sys.executable, "-m", "pulsetrain.demo.train", "--seconds", f"{seconds:g}")
    click.echo("The training is real and runs on your CPU; the GPUs are simulated. The same by hand:")
    click.echo(f"  pulsetrain run --simulate 2xL4 --name demo -- python {' '.join(command[1:])}\n")
    code: int = ctx.invoke(run, command=command, simulate="2xL4", name="demo", tag={}, directory=directory)
    if code == 0:
        click.echo(NEXT)
    return code
