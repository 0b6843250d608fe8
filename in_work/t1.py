from h import *
def transitive_barrier(rank):
    "G=[0,1] K=[1,2]; 1 waits in graph with G and K, 2 waits with K, 0 calls barrier in G"
    init(); G=grp(0,1); K=grp(1,2); W=dist.group.WORLD
    x=made(value=rank+1); y=made(value=10*(rank+1)); f=[]
    def run():
        with in_graph():
            if rank==1: dist.all_reduce(x,group=G)
            if rank in(1,2): dist.all_reduce(y,group=K)
            torch_xla.sync()
    if rank==0:
        time.sleep(1); f.append(out(lambda: dist.barrier(group=G)))
    else: f.append(out(run)); f.append(out(lambda:(x.tolist(),y.tolist())))
    bar("a",3)
    N=grp(0,1,2); z=made(value=rank+1); f.append(out(lambda:(dist.all_reduce(z,group=N),z.tolist())[1]))
    dist.destroy_process_group(); return f
def transitive_next(rank):
    "as before, and 1 goes on with its second call in K"
    init(); G=grp(0,1); K=grp(1,2)
    x=made(value=rank+1); y=made(value=10*(rank+1)); y2=made(value=1000*(rank+1)); f=[]
    def run():
        with in_graph():
            if rank==1: dist.all_reduce(x,group=G)
            if rank in(1,2): dist.all_reduce(y,group=K)
            torch_xla.sync()
    def run2():
        with in_graph():
            dist.all_reduce(y2,group=K); torch_xla.sync()
        return y2.tolist()
    if rank==0:
        time.sleep(1); f.append(out(lambda: dist.barrier(group=G)))
    else:
        f.append(out(run))
        f.append(out(run2)); f.append(out(lambda:(y.tolist())))
    bar("a",3)
    dist.destroy_process_group(); return f
def helper_breaks(rank):
    "own thread of 0 waits in H=[0,1]; its helper receives from 2 in G=[0,2] a wrong shape. 1 comes late to H"
    init(); H=grp(0,1); G=grp(0,2); f=[]
    x=made(value=rank+1); x2=made(value=100*(rank+1)); m=made(4 if rank==0 else 5)
    torch_xla.sync(wait=True)
    def h(a):
        def r():
            with in_graph(): dist.all_reduce(a,group=H); torch_xla.sync()
            return a.tolist()
        return r
    if rank==0:
        w=dist.irecv(m,2,group=G); o=[]
        t=threading.Thread(target=lambda:o.append(out(w.wait))); t.start()
        f.append(out(h(x))); t.join(); f+=o
        ev("heard").set()
        f.append(out(h(x2)))
    elif rank==2:
        time.sleep(1); f.append(out(lambda: dist.isend(m,0,group=G).wait()))
    else:
        ev("heard").wait(15); f.append(out(h(x))); f.append(out(h(x2)))
    bar("a",3); dist.destroy_process_group(); return f
def helper_hears_own_pending(rank):
    "0's helper finds G broken while 0's own thread, not waiting, has H pending in the graph and then runs it"
    init(); H=grp(0,1); G=grp(0,2); f=[]
    x=made(value=rank+1); x2=made(value=100*(rank+1)); m=made(4 if rank==0 else 5)
    torch_xla.sync(wait=True)
    def run():
        with in_graph(): 
            if rank==0: time.sleep(1.0)
            torch_xla.sync()
        return x.tolist()
    if rank==0:
        w=dist.irecv(m,2,group=G); o=[]
        with in_graph(): dist.all_reduce(x,group=H)
        t=threading.Thread(target=lambda:o.append(out(w.wait))); t.start()
        ev("go").set(); t.join(); f+=o
        f.append(out(run)); f.append(out(lambda:x.tolist()))
    elif rank==2:
        ev("go").wait(); time.sleep(.3); f.append(out(lambda: dist.isend(m,0,group=G).wait()))
    else:
        with in_graph(): dist.all_reduce(x,group=H); f.append(out(run)); f.append(out(lambda:x.tolist()))
    bar("a",3); dist.destroy_process_group(); return f
go(transitive_barrier,3); go(transitive_next,3); go(helper_breaks,3); go(helper_hears_own_pending,3)
