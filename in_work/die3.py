# two ranks: a helper's wait is refused since the rank has a call pending; then the rank reads
from h import *
def prog(rank):
    init(); H=grp(0,1); G=grp(0,1); f=[]
    x=made(value=rank+1); m=made(4)
    torch_xla.sync(wait=True)
    if rank==0: w=dist.irecv(m,1,group=G); o=[]
    with in_graph(): dist.all_reduce(x,group=H)
    if rank==0:
        t=threading.Thread(target=lambda:o.append(out(lambda:w.wait()))); t.start(); t.join(); f+=o
    f.append(out(lambda: x.tolist()))
    return f
go(prog,2,1,limit=8)
