"""`%load_ext pulsetrain`, and `%%pulsetrain`: a cell as a run of its own."""

import ast
from typing import Any

from pulsetrain.training import api
from pulsetrain.training.ending import INTERRUPTED

OPTIONS: dict[str, dict[str, Any]] = {
    "--name": {"help": "Name of the run."},
    "--project": {"help": "Project of the run."},
    "--tag": {"help": "Tag the run; may be repeated.", "metavar": "KEY=VALUE", "action": "append", "default": []},
    "--interval": {"help": "How often to sample.", "metavar": "SECONDS", "type": float, "default": 1.0},
    "--gpus": {"help": "Which GPUs to watch: 0,2."},
    "--simulate": {"help": "Simulated GPUs: 2xH100.", "metavar": "GPUS"},
    "--dir": {"help": "Folder for the run.", "metavar": "FOLDER", "dest": "directory"},
    "--no-instrument": {"help": "Do not instrument the training loop.", "action": "store_true"},
    "--show": {"help": "Show the run live.", "action": "store_true"},
}


def load_ipython_extension(shell: Any) -> None:
    """What `%load_ext pulsetrain` calls."""
    from IPython.core.magic import output_can_be_silenced
    from IPython.core.magic_arguments import argument, magic_arguments, parse_argstring

    def pulsetrain(line: str, cell: str) -> object:
        """Watch this cell as a run of its own, and end with its summary."""
        __tracebackhide__ = True  # of the user's errors, only the user's lines are shown
        return run_cell(shell, cell, parse_argstring(magic, line))

    magic: Any = pulsetrain
    for name, about in reversed(OPTIONS.items()):
        magic = argument(name, **about)(magic)
    magic = output_can_be_silenced(magic_arguments()(magic))
    shell.register_magic_function(magic, "cell", "pulsetrain")


def run_cell(shell: Any, cell: str, options: Any) -> object:
    """Run a cell between `init` and `finish`. Returns the value of its last expression, as a cell does."""
    __tracebackhide__ = True
    if api.current_run() is not None:
        api.tell("pulsetrain: this cell is already part of the run being recorded")
        return _execute(shell, cell)
    api.init(
        options.name,
        project=options.project,
        tags=dict(tag.partition("=")[::2] for tag in options.tag),
        interval=options.interval,
        gpus=options.gpus,
        simulate=options.simulate,
        directory=options.directory,
        instrument=not options.no_instrument,
    )
    if options.show:
        from pulsetrain.views.notebook.show import show

        show()
    exit_code = 1
    try:
        value = _execute(shell, cell)
        exit_code = 0
    except KeyboardInterrupt:
        exit_code = INTERRUPTED
        raise
    finally:
        api.finish(exit_code)
    return value


def _execute(shell: Any, cell: str) -> object:
    """As the shell runs a cell, but what it raises comes through."""
    __tracebackhide__ = True
    source = shell.transform_cell(cell)
    file = shell.compile.cache(source, shell.execution_count)  # tracebacks show its lines
    tree = shell.transform_ast(shell.compile.ast_parse(source, file))
    last = tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    exec(shell.compile(tree, file, "exec"), shell.user_ns)  # noqa: S102 - the user's own code, as the user says
    return eval(shell.compile(ast.Expression(last.value), file, "eval"), shell.user_ns) if last else None
