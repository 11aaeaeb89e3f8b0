"""A forward pass over several streams, and autograd, which goes back over the same streams."""
from digest import deterministic_torch, show

torch = deterministic_torch()
streams = [torch.cuda.Stream(priority=p) for p in (0, -1, 0, -1)]
weights = [torch.randn(512, 512, device="cuda", requires_grad=True) for _ in streams]
data = torch.randn(256, 512, device="cuda")
for _ in range(100):
    ready = torch.cuda.Event()
    ready.record()
    parts = []
    for stream, weight in zip(streams, weights):
        with torch.cuda.stream(stream):
            stream.wait_event(ready)
            parts.append((data @ weight).tanh())
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)
    sum(part.square().mean() for part in parts).backward()
    with torch.no_grad():
        for weight in weights:
            weight -= 0.1 * weight.grad
            weight.grad = None
show("weights", torch.stack([w.detach() for w in weights]).cpu())
