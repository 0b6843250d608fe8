# 1 finds the failure of G while 0 has its call of G in the graph and has not come to its sync() yet
from h import *
how=sys.argv[1]
def prog(rank):
    init(); G=grp(0,1); f=[]; x=made(2,value=rank+1); y=made(3)
    if rank==0:
        with in_graph():
            dist.all_reduce(x,group=G); ev("issued").set(); ev("found").wait(5)
            f.append(out(lambda: torch_xla.sync() if how!="item" else x.tolist())); f.append(x.tolist())
    elif rank==1:
        ev("issued").wait()
        f.append(out(lambda: dist.all_reduce(y,group=G) if how!="barrier" else dist.barrier(group=G))); ev("found").set()
    else: # in no failing group
        H=0; time.sleep(2)
    bar("x",3)
    z=made(value=rank); f.append(out(lambda:(dist.all_reduce(z),z.tolist())[1]))
    return f
go(prog,3,2,limit=8)
