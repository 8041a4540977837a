"""Variables of the environment that change how a training runs. Only these are recorded, whatever else is set."""

from collections.abc import Mapping

from pulsetrain.training.masking import masked_value, storable

LONGEST = 300
NAMES = frozenset(
    {
        "CONDA_DEFAULT_ENV",
        "CUBLAS_WORKSPACE_CONFIG",
        "CUDA_DEVICE_ORDER",
        "CUDA_LAUNCH_BLOCKING",
        "CUDA_VISIBLE_DEVICES",
        "HIP_VISIBLE_DEVICES",
        "JAX_ENABLE_X64",
        "JAX_PLATFORMS",
        "KERAS_BACKEND",
        "MKL_NUM_THREADS",
        "NVIDIA_PYTORCH_VERSION",
        "NVIDIA_TF32_OVERRIDE",
        "NVIDIA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "PYTHONHASHSEED",
        "PYTORCH_ALLOC_CONF",
        "PYTORCH_CUDA_ALLOC_CONF",
        "ROCR_VISIBLE_DEVICES",
        "TF_CPP_MIN_LOG_LEVEL",
        "TF_ENABLE_ONEDNN_OPTS",
        "TOKENIZERS_PARALLELISM",
        "TORCH_LOGS",
        "XLA_FLAGS",
        "XLA_PYTHON_CLIENT_MEM_FRACTION",
    }
)
PREFIXES = ("NCCL_", "TORCH_NCCL_", "UCX_", "FI_")
"""Of the libraries that ranks talk to each other through."""


def allowed(environment: Mapping[str, str]) -> dict[str, str]:
    """Those that are recorded, in order of their names."""
    return {
        name: storable(masked_value(name, environment[name]))[:LONGEST]
        for name in sorted(environment)
        if name in NAMES or name.startswith(PREFIXES)
    }
