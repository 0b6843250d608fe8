"""What fully_shard has gathered is freed after use, and comes back. Run by torchrun."""

import torch
import torch.distributed as dist
import torch_xla
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import torch_xla_cc
from torch_xla_cc.adapters import fsdp, optimizers

torch_xla_cc.install()
optimizers.install()
fsdp.install()
dist.init_process_group("xla_cc")
mesh = init_device_mesh("xla", (dist.get_world_size(),))
torch.manual_seed(0)
plain = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 16), nn.Linear(16, 4)).to(torch_xla.device())
for layer in model:
    fully_shard(layer, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def kept(layer):
    """The devices of what the layer's parameters have gathered, and of the parameters."""
    found = set()
    for parameter in layer._get_fsdp_state()._fsdp_param_group.fsdp_params:
        for x in (*parameter.all_gather_outputs, parameter._unsharded_param.data):
            found.add(torch._from_functional_tensor(x).device.type)
    return found


for _ in range(3):
    x = torch.randn(6, 8)
    loss = model(x.to(torch_xla.device())).pow(2).mean()
    assert [kept(layer) for layer in model] == [{"meta"}, {"meta"}]
    loss.backward()
    assert [kept(layer) for layer in model] == [{"meta"}, {"meta"}]
    optimizer.step()
    plain.zero_grad()
    plain(x).pow(2).mean().backward()
    with torch.no_grad():
        for parameter in plain.parameters():
            parameter -= 0.1 * parameter.grad
    optimizer.zero_grad()

for layer in model:
    layer.unshard()
    assert kept(layer) == {"xla"}
for parameter, expected in zip(model.parameters(), plain.parameters(), strict=True):
    torch.testing.assert_close(parameter.data.cpu(), expected.data)
for layer in model:
    layer.reshard()
    assert kept(layer) == {"meta"}
dist.destroy_process_group()
