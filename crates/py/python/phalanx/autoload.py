"""What PyTorch calls at the end of ``import torch``: makes the backend known, and nothing else."""


def load() -> None:
    from . import front

    front.register()
