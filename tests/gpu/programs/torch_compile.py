"""Trains a perceptron through torch.compile."""
import os
import shutil
import sysconfig

from digest import deterministic_torch, show, skip

if not shutil.which("gcc") or not os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")):
    skip("needs gcc and Python's headers")
torch = deterministic_torch()
nn = torch.nn
model = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.LayerNorm(1024), nn.Linear(1024, 256)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
compiled = torch.compile(model)
data = torch.randn(512, 256, device="cuda")
for step in range(300):
    loss = (compiled(data) - data).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
show("loss", loss.detach().cpu())
show("weights", torch.cat([p.detach().flatten() for p in model.parameters()]).cpu())
