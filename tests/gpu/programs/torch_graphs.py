"""Captures a whole training step as a CUDA graph, as PyTorch's documentation shows, and replays it."""
from digest import deterministic_torch, show

torch = deterministic_torch()
nn = torch.nn
model = nn.Sequential(*[layer for _ in range(8) for layer in (nn.Linear(512, 512), nn.ReLU())]).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
batch = torch.zeros(256, 512, device="cuda")


def step():
    optimizer.zero_grad(set_to_none=True)
    loss = (model(batch) - batch).square().mean()
    loss.backward()
    optimizer.step()
    return loss


side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    for _ in range(3):
        step()
torch.cuda.current_stream().wait_stream(side)

graph = torch.cuda.CUDAGraph()
optimizer.zero_grad(set_to_none=True)
with torch.cuda.graph(graph):
    captured = step()
for i in range(500):
    batch.copy_(torch.full((256, 512), float(i % 7)))
    graph.replay()
show("loss", captured.detach().cpu())
show("weights", torch.cat([p.detach().flatten() for p in model.parameters()]).cpu())

inference = torch.cuda.make_graphed_callables(model.eval(), (batch.clone(),))
show("graphed callable", inference(batch).detach().cpu())
