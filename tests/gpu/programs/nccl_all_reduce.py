"""An all-reduce over two GPUs, a process for each."""
import os

from digest import deterministic_torch, show, skip

torch = deterministic_torch()


def rank_main(rank, world):
    torch.cuda.set_device(rank)
    torch.distributed.init_process_group("nccl", rank=rank, world_size=world)
    tensor = torch.arange(1 << 20, dtype=torch.int64, device="cuda") * (rank + 1)
    for _ in range(200):
        torch.distributed.all_reduce(tensor)
        tensor = tensor % 1_000_003
    if rank == 0:
        show("sum", tensor.cpu())
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    if torch.cuda.device_count() < 2:
        skip("needs two GPUs")
    os.environ.setdefault("MASTER_ADDR", "127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(29500 + os.getpid() % 1000))
    torch.multiprocessing.spawn(rank_main, args=(2,), nprocs=2)
