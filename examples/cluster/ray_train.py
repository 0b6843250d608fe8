"""Ray Train starts the ranks: its TorchTrainer as it is, in as many processes as you ask for.

    pip install 'ray[train]'
    python examples/cluster/ray_train.py --ranks=2

Ray's own process group is gloo. With it the ranks agree on where the world of xla_cc meets, and
close it; from there on the training function is that of train.py.
"""

import argparse
import os
import secrets
import socket
import sys
from pathlib import Path

import ray
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchConfig, TorchTrainer

HERE = Path(__file__).resolve().parent


def free_port():
    with socket.socket() as probe:
        probe.bind(("", 0))
        return probe.getsockname()[1]


def meet():
    """From Ray's gloo group to the world of xla_cc."""
    import torch.distributed as dist

    import torch_xla_cc.distributed  # noqa: F401  # registers the backend

    host = ray.util.get_node_ip_address()
    place = [(host, free_port(), f"{host}:{free_port()}", secrets.token_hex(16))]
    dist.broadcast_object_list(place, src=0)  # that of rank 0
    dist.destroy_process_group()
    host, port, pod, token = place[0]
    os.environ.update(MASTER_ADDR=host, MASTER_PORT=str(port))
    # Where the pod's device processes meet. Under torchrun its store says so.
    os.environ.update(TORCH_XLA_CC_POD_ADDRESS=pod, TORCH_XLA_CC_POD_TOKEN=token)
    dist.init_process_group("xla_cc")  # RANK, WORLD_SIZE, LOCAL_RANK are set by Ray


def train_function(config):
    sys.path.insert(0, str(HERE))
    import torch.distributed as dist
    import train

    meet()
    loss = train.train(config["steps"], config["fail"])
    ray.train.report({"loss": loss})
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--fail", type=int, default=-1, metavar="RANK")
    parser.add_argument("--storage", default="/tmp/ray_results", help="all hosts have to see it")
    options = parser.parse_args()

    of_ranks = {
        "PJRT_DEVICE": "POD",
        "OMP_NUM_THREADS": "1",
        "TORCH_XLA_CC_DUMP": os.environ.get("TORCH_XLA_CC_DUMP", f"{options.storage}/flight"),
    }
    ray.init(runtime_env={"env_vars": of_ranks})
    trainer = TorchTrainer(
        train_function,
        train_loop_config={"steps": options.steps, "fail": options.fail},
        torch_config=TorchConfig(backend="gloo"),
        scaling_config=ScalingConfig(num_workers=options.ranks, resources_per_worker={"CPU": 1}),
        run_config=RunConfig(name="txcc", storage_path=options.storage),
    )
    result = trainer.fit()
    # (Ray keeps the metrics of a report with a checkpoint; this one has none.)
    print("done; results are in", result.path)
