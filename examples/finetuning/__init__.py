"""The parts of `qlora_finetune.py`: models and data."""


class Problem(Exception):
    """Something that the user can mend: what is wrong, and what to do."""

    def __init__(self, what: str, hint: str = "") -> None:
        super().__init__(what)
        self.hint = hint
