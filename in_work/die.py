# 0's helper finds G=[0,2] broken (message of another shape) while 0 has a call of H=[0,1] pending in its graph
from h import *
def prog(rank):
    init(); H=grp(0,1); G=grp(0,2); f=[]
    x=made(value=rank+1); m=made(4 if rank==0 else 5)
    torch_xla.sync(wait=True)
    if rank==2:
        ev("go").wait(); return [out(lambda: dist.isend(m,0,group=G).wait())]
    if rank==0: w=dist.irecv(m,2,group=G); o=[]
    with in_graph(): dist.all_reduce(x,group=H)
    if rank==0:
        t=threading.Thread(target=lambda:o.append(out(w.wait))); t.start()
        ev("go").set(); t.join(); f+=o
    f.append(out(lambda: x.tolist()))
    return f
go(prog,3,int(sys.argv[1]) if len(sys.argv)>1 else 1,limit=8)
