from h import *
def sync_g(*pairs):
    def r():
        with in_graph():
            for x,g in pairs: dist.all_reduce(x,group=g)
            torch_xla.sync()
        return [x.tolist() for x,_ in pairs]
    return r
def wrong_after_transitive(rank):
    "G=[0,1] K=[1,2]; 0 calls barrier in G; 1 loses G and K; goes on with ITS NEXT call in K; 2 is at its first"
    init(); G=grp(0,1); K=grp(1,2); f=[]
    x=made(value=rank+1); y=made(value=10*(rank+1)); y2=made(value=1000*(rank+1))
    if rank==0: time.sleep(.5); f.append(out(lambda: dist.barrier(group=G)))
    if rank==1: f.append(out(sync_g((x,G),(y,K)))); f.append(out(sync_g((y2,K))))
    if rank==2: f.append(out(sync_g((y,K)))); f.append(out(sync_g((y2,K))))
    return f
def wrong_after_helper(rank):
    "0's own thread waits in H=[0,1]; its helper finds G=[0,2] broken; 0 goes on with its next call in H; 1 comes to its first"
    init(); H=grp(0,1); G=grp(0,2); f=[]
    x=made(value=rank+1); x2=made(value=100*(rank+1)); m=made(4 if rank==0 else 5)
    torch_xla.sync(wait=True)
    if rank==0:
        w=dist.irecv(m,2,group=G); o=[]
        t=threading.Thread(target=lambda:o.append(out(w.wait))); t.start(); time.sleep(.3); ev("go").set()
        f.append(out(sync_g((x,H)))); ev("heard").set(); f.append(out(sync_g((x2,H)))); t.join(); f+=o
    elif rank==2:
        ev("go").wait(9); time.sleep(.5); f.append(out(lambda: dist.isend(m,0,group=G).wait()))
    else:
        ev("heard").wait(9); f.append(out(sync_g((x,H)))); f.append(out(sync_g((x2,H))))
    return f
def late_with_pending(rank):
    "G=[0,1,2] fails between 0 and 1 in graph; 2 has H=[2,3] pending and comes to G"
    init(); G=grp(0,1,2); H=grp(2,3); f=[]
    x=made(2+(rank==1),value=rank+1); y=made(value=rank+1); y2=made(value=100*rank)
    if rank in (0,1): f.append(out(sync_g((x,G)))); 
    if rank==2:
        time.sleep(1)
        with in_graph():
            dist.all_reduce(y,group=H); f.append(out(lambda:dist.all_reduce(x,group=G)))
            f.append(out(lambda:torch_xla.sync())); f.append(out(lambda:(y.tolist(),x.tolist())))
    if rank==3:
        f.append(out(sync_g((y,H)))); 
    bar("x",4)
    N=grp(0,1,2,3); N2=grp(2,3); z=made(value=rank); f.append(out(lambda:(dist.all_reduce(z,group=N),z.tolist())[1]))
    if rank>1: f.append(out(lambda:(dist.all_reduce(y2,group=N2),y2.tolist())[1]))
    dist.destroy_process_group(); return f
def late_with_pending_keeps(rank):
    "as before, 2 runs H before it comes to G: right; then hears"
    init(); G=grp(0,1,2); H=grp(2,3); f=[]
    x=made(2+(rank==1),value=rank+1); y=made(value=rank+1)
    if rank in (0,1): f.append(out(sync_g((x,G)))); 
    if rank==2: time.sleep(1); f.append(out(sync_g((y,H)))); f.append(out(sync_g((x,G))))
    if rank==3: f.append(out(sync_g((y,H))))
    bar("x",4); dist.destroy_process_group(); init(); z=made(value=rank); f.append(out(lambda:(dist.all_reduce(z),z.tolist())[1]))
    dist.destroy_process_group(); return f
def circle(rank):
    "three ranks, three pair groups, each syncs in own order; then again in new groups"
    init(); g=[grp(0,1),grp(1,2),grp(2,0)]; f=[]
    a,b=made(value=rank+1),made(value=10*(rank+1))
    f.append(out(lambda:(dist.all_reduce(a,group=g[rank]),a.tolist())[1]))
    f.append(out(lambda:(dist.all_reduce(b,group=g[rank-1]),b.tolist())[1]))
    f.append(out(lambda:(a.tolist(),b.tolist())))
    bar("x",3); g=[grp(0,1),grp(1,2),grp(2,0)]
    a,b=made(value=rank+1),made(value=10*(rank+1))
    with in_graph():
        mine=sorted([rank,(rank-1)%3]); 
        for i in mine: dist.all_reduce(a if i==rank else b,group=g[i])
        f.append(out(lambda:(a.tolist(),b.tolist())))
    dist.destroy_process_group(); return f
def two_failures(rank):
    "G=[0,1,2] H=[2,3,4]: 0/1 disagree in G and 3/4 in H at once; 2 has both pending"
    init(); G=grp(0,1,2); H=grp(2,3,4); f=[]
    x=made(2+(rank==1)); y=made(2+(rank==4))
    for k in range(2):
        p=[(x,G)] if rank<2 else [(x,G),(y,H)] if rank==2 else [(y,H)]
        f.append(out(sync_g(*p)))
        bar(f"x{k}",5); G=grp(0,1,2); H=grp(2,3,4); x=made(2); y=made(2,value=rank)
    dist.destroy_process_group(); return f
names=sys.argv[1].split(","); times=int(sys.argv[2])
N=dict(wrong_after_transitive=3,wrong_after_helper=3,late_with_pending=4,late_with_pending_keeps=4,circle=3,two_failures=5)
for n in names: go(globals()[n],N[n],times,limit=8)
