"""PyTorch's allocator with expandable segments: the driver's virtual memory management."""
import os

os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
from digest import deterministic_torch, show  # noqa: E402  the variable must be set before

torch = deterministic_torch()
kept = []
for size in range(1, 200):
    tensor = torch.full((size * 4099,), float(size), device="cuda")
    if size % 3 == 0:
        kept.append(tensor)
    if size % 50 == 0:
        torch.cuda.empty_cache()
show("sums", torch.stack([t.double().sum() for t in kept]).cpu())
