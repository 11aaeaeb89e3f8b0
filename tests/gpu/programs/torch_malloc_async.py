"""PyTorch over cudaMallocAsync: the driver's stream-ordered pools."""
import os

os.environ["PYTORCH_ALLOC_CONF"] = os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "backend:cudaMallocAsync"
from digest import deterministic_torch, show  # noqa: E402  the variable must be set before

torch = deterministic_torch()
total = torch.zeros((), dtype=torch.float64, device="cuda")
for size in range(1, 300):
    a = torch.full((size, 1000), 2.0, device="cuda")
    total += (a @ a.T).double().sum()
    if size % 100 == 0:
        torch.cuda.empty_cache()
show("total", total.cpu())
