"""A rank that is long in its backward pass, while another waits for what it has pending."""

import time

import programs
import staying
import torch
import torch.distributed as dist
import torch_xla

HOOK_S = 5.0  # more than the 2 s in which who waits says so again


def waits(rank, for_peer):
    """Of rank 0: how many programs ran in the hook, and then; what the calls have left."""
    with staying.world() as (device, store):
        x = torch.full((2,), rank + 1.0).to(device)
        torch_xla.sync()
        dist.all_reduce(x)
        if rank == 1:
            found = x.tolist()
            store.set("read", "")
            return 0, 0, found
        counts = []

        def hook(_):
            before = programs.ran()
            if for_peer:
                store.wait(["read"])
            else:
                time.sleep(HOOK_S)
            counts.append(programs.ran() - before)

        y = torch.ones(2, device=device, requires_grad=True) * 2
        y.register_hook(hook)
        y.sum().backward()
        before = programs.ran()
        store.wait(["read"])
        return counts[0], programs.ran() - before, x.tolist()
