"""PyTorch's copy and sum on the card, timed: torch_copy.py BYTES REPEATS prints {"copy": [bytes/s, ...], "read": [...]}."""
import json
import sys

import torch


def main():
    size, repeats = int(sys.argv[1]), int(sys.argv[2])
    source = torch.randint(0, 1 << 30, (size // 4,), dtype=torch.int32, device="cuda")
    target = torch.empty_like(source)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def timed(work, moved):
        work()
        begin.record()
        work()
        end.record()
        end.synchronize()
        return moved / (begin.elapsed_time(end) / 1e3)

    values = source.view(torch.float32)  # PyTorch adds integers up as 64-bit ones, which is slower
    result = {"copy": [], "read": []}
    for _ in range(repeats):
        result["copy"].append(timed(lambda: target.copy_(source), 2 * size))
        result["read"].append(timed(values.sum, size))
    print(json.dumps(result))


main()
