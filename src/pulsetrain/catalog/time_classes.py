"""What the time of a rank may be spent on. Every instant belongs to one of these classes."""

TIME_CLASSES = {
    "startup": "start-up",
    "compile": "compiling",
    "warm_up": "warm-up",
    "data_wait": "waiting for data",
    "copy": "copying to the device",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "compute": "compute",
    "communication": "communication",
    "checkpoint": "checkpoints",
    "evaluation": "evaluation",
    "logging": "logging",
    "garbage_collection": "garbage collection",
    "stall": "stalled",
    "restart": "restarting",
    "lost_work": "lost work",
    "tail": "after the last step",
    "unknown": "unknown",
}
"""In the order in which they are shown, and what people call them."""
STARTUP_PARTS = {"interpreter": "interpreter", "imports": "imports", "set_up": "set-up"}
"""What a start-up is made of, and what people call it: frameworks that are imported; then devices, data and models."""
COMPUTE_CLASSES = ("forward", "backward", "optimizer", "compute")
PART_CLASSES = {
    "data_wait": "data_wait",
    "copy": "copy",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "communication": "communication",
    "logging": "logging",
    "gc": "garbage_collection",
}
"""The class of each part of a step that has one; what is left of a step is unknown."""
PHASE_CLASSES = {
    "checkpoint": "checkpoint",
    "saving": "checkpoint",
    "loading": "checkpoint",
    "compile": "compile",
    "validation": "evaluation",
    "evaluation": "evaluation",
    "eval": "evaluation",
    "test": "evaluation",
    "sanity": "evaluation",
    "prediction": "evaluation",
    "predict": "evaluation",
    "logging": "logging",
}
"""By the first word of a phase's name."""


def class_of_phase(name: str) -> str:
    """Where the time of a phase belongs, by its name."""
    words = name.lower().replace("_", " ").replace("-", " ").split()
    return PHASE_CLASSES.get(words[0], "unknown") if words else "unknown"
