import sys, time, threading, traceback
from datetime import timedelta
import torch, torch.distributed as dist, torch_xla, torch_xla_cc
from torch_xla_cc.distributed import in_graph
import torch.distributed._functional_collectives as functional
T=2
def made(*s, value=1.0): return torch.full(s or (2,), float(value), device=torch_xla.device())
def out(call):
    b=time.monotonic()
    try: r=call()
    except Exception as e: r=type(e).__name__+": "+str(e)[:110]
    return r, round(time.monotonic()-b,1)
def grp(*m): return dist.new_group(list(m), timeout=timedelta(seconds=T))
def init(t=T): dist.init_process_group("xla_cc", timeout=timedelta(seconds=t))
_flags={}
_l=threading.Lock()
class F:
    def __init__(s,names): s.e={}
def ev(name):
    with _l: return _flags.setdefault(name, threading.Event())
def bar(name,n):
    with _l: b=_flags.setdefault("b"+name, threading.Barrier(n))
    b.wait(60)
def go(fn,n,times=1,limit=20,quiet=False):
    for t in range(times):
        _flags.clear()
        b=time.monotonic()
        try: r=torch_xla_cc.launch(fn,nprocs=n,timeout_s=limit)
        except BaseException as e: r=["LAUNCH "+type(e).__name__+": "+str(e)[:300]]
        print(f"-- {fn.__name__} #{t} {time.monotonic()-b:.1f}s")
        for i,x in enumerate(r): print("  ",i,x)
        sys.stdout.flush()
