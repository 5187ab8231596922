"""What a device can do."""

import torch


def has_bf16(device: torch.device) -> bool:
    """Whether it multiplies bf16 itself: what a CPU only imitates is slower than fp32."""
    if device.type == "cuda":
        return torch.cuda.get_device_capability(device) >= (8, 0)
    tests = ("_is_avx512_bf16_supported", "_is_amx_tile_supported")
    return any(bool(getattr(torch.cpu, test, bool)()) for test in tests)
