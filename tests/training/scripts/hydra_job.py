# mypy: ignore-errors
"""A job of Hydra, with a structured config that the command line changes."""

from dataclasses import dataclass, field

import hydra
from hydra.core.config_store import ConfigStore

import pulsetrain


@dataclass
class Model:
    depth: int = 6


@dataclass
class Config:
    lr: float = 0.1
    api_key: str = "sesame-sesame-sesame"
    key: str = "${oc.env:HUB_KEY}"
    model: Model = field(default_factory=Model)


ConfigStore.instance().store(name="config", node=Config)


@hydra.main(version_base=None, config_name="config")
def main(config):
    assert config.key == "sesame-sesame"
    for step in range(3):
        pulsetrain.log(step=step, loss=config.lr)


main()
