#!/usr/bin/env python3
"""Records what a PyTorch training program allocates and frees, as a trace for bench_pool.

    bench/pool/record.py PROGRAM [--steps N] [--out FILE]

PROGRAM is one of programs.py: resnet, transformer, detector. Needs a GPU.
Exit code: 0 recorded; 1 it failed; 2 bad usage; 3 no GPU or no PyTorch.
"""

import argparse
import json
import sys


def to_events(entries):
    """[[block, bytes, stream], ...] of PyTorch's own history of one device; bytes 0 frees the block.

    Blocks and streams are numbered in the order of their appearance, and a freed block's number is used again. A free
    stands where the program asked for it, on the stream that PyTorch gives the memory back to: the block's own.
    """
    events, live, spare, streams = [], {}, [], {}
    for entry in entries:
        address = entry["addr"]
        if entry["action"] == "alloc":
            if entry["size"] <= 0:
                continue
            block = spare.pop() if spare else len(live)
            stream = streams.setdefault(entry["stream"], len(streams))
            live[address] = block, stream
            events.append([block, entry["size"], stream])
        elif entry["action"] == "free_requested" and address in live:  # else it is older than the recording
            block, stream = live.pop(address)
            spare.append(block)
            events.append([block, 0, stream])
    return events


def record(name, steps):
    """The trace of `steps` steps, from the program's first allocation on."""
    import torch
    from programs import PROGRAMS

    torch.manual_seed(1)
    torch.cuda.memory._record_memory_history(max_entries=1 << 22, context=None, stacks="python")
    step = PROGRAMS[name]()
    for _ in range(steps):
        loss = step()
    torch.cuda.synchronize()
    entries = torch.cuda.memory._snapshot()["device_traces"][torch.cuda.current_device()]
    torch.cuda.memory._record_memory_history(enabled=None)
    assert torch.isfinite(loss).item(), "the loss is not finite"
    reserved, active = torch.cuda.max_memory_reserved(), torch.cuda.max_memory_allocated()
    return {"name": name, "steps": steps, "torch": torch.__version__, "torch_reserved_peak_bytes": reserved,
            "torch_active_peak_bytes": active, "events": to_events(entries)}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("--steps", type=int, default=20, help="steps to record (%(default)s)")
    parser.add_argument("--out", help="the file (PROGRAM.json)")
    options = parser.parse_args()
    try:
        import torch
        from programs import PROGRAMS
    except ImportError as error:
        print(f"record: {error}", file=sys.stderr)
        return 3
    if options.program not in PROGRAMS:
        parser.error(f"no program {options.program}; there are {', '.join(PROGRAMS)}")
    if options.steps < 1:
        parser.error("--steps needs a number of 1 or more")
    if not torch.cuda.is_available():
        print("record: PyTorch finds no GPU here", file=sys.stderr)
        return 3
    trace = record(options.program, options.steps)
    out = options.out or f"{options.program}.json"
    with open(out, "w", encoding="utf-8") as file:
        json.dump(trace, file, separators=(",", ":"))
    print(f"{out}: {len(trace['events'])} calls in {trace['steps']} steps")
    return 0


if __name__ == "__main__":
    sys.exit(main())
