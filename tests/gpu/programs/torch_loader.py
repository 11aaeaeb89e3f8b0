"""A DataLoader with worker processes and pinned memory, started by fork and by spawn."""
from digest import deterministic_torch, show

torch = deterministic_torch()


class Squares(torch.utils.data.Dataset):
    def __len__(self):
        return 512

    def __getitem__(self, i):
        return torch.full((64, 64), float(i)).square(), i


def main():
    for context in ("fork", "spawn"):
        loader = torch.utils.data.DataLoader(Squares(), batch_size=32, num_workers=4, pin_memory=True,
                                             multiprocessing_context=context)
        total = torch.zeros(64, 64, dtype=torch.float64, device="cuda")
        seen = 0
        for images, indices in loader:
            total += images.cuda(non_blocking=True).double().sum(0)
            seen += int(indices.sum())
        show(f"{context}: sum of {seen}", total.cpu())


if __name__ == "__main__":
    main()
