# 1 waits with G=[0,1], G, K=[0,1,2]; 2 waits with K; 0 (late, one call of G pending) fails in G; then all go on in K: 0 with its first call there
from h import *
from t2lib import sync_g
def prog(rank):
    init(); G=grp(0,1); K=grp(0,1,2); f=[]
    a,b,y,y2=[made(value=v*(rank+1)) for v in (1,1,10,1000)]
    if rank==0:
        time.sleep(.5)
        with in_graph():
            dist.all_reduce(a,group=G); f.append(out(lambda: dist.all_reduce(made(5),group=G)))
        f.append(out(sync_g((y,K))))
    else:
        f.append(out(sync_g(*([(a,G),(b,G)] if rank==1 else []),(y,K)))); f.append(out(sync_g((y2,K))))
    return f
go(prog,3,5,limit=6)
