"""Trains a small convolutional network in eager mode."""
from digest import deterministic_torch, show

torch = deterministic_torch()
nn = torch.nn
model = nn.Sequential(nn.Conv2d(3, 32, 3, padding=1), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
                      nn.Conv2d(32, 64, 3, padding=1), nn.BatchNorm2d(64), nn.ReLU(), nn.Flatten(),
                      nn.Linear(64 * 16 * 16, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
images, labels = torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,))
for step in range(200):
    loss = nn.functional.cross_entropy(model(images.cuda()), labels.cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 50 == 49:
        show(f"loss after {step + 1}", loss.detach().cpu())
show("weights", torch.cat([p.detach().flatten() for p in model.parameters()]).cpu())
