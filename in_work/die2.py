# legit order: the helper waits first; then 0 has a call of H=[0,1] pending; then 2 sends another shape; then 0 reads
from h import *
how=sys.argv[1]
def prog(rank):
    init(); H=grp(0,1); G=grp(0,2); f=[]
    x=made(value=rank+1); m=made(4 if rank==0 else 5)
    torch_xla.sync(wait=True)
    if rank==2:
        ev("go").wait()
        if how=="shape": return [out(lambda: dist.isend(m,0,group=G).wait())]
        if how=="barrier": return [out(lambda: dist.barrier(group=G))]
        if how=="ends": return []
    if rank==0:
        w=dist.irecv(m,2,group=G); o=[]
        t=threading.Thread(target=lambda:o.append(out(lambda:w.wait(timedelta(seconds=3))))); t.start()
        time.sleep(.5)
    with in_graph(): dist.all_reduce(x,group=H)
    if rank==0:
        ev("go").set(); t.join(); f+=o
    f.append(out(lambda: x.tolist()))
    return f
go(prog,3,1,limit=8)
