from h import *
from t2lib import sync_g
def step(x,g): return functional.all_reduce(x*2,"sum",g)+1
def compiled_after(rank):
    init(); G=grp(0,1,2); K=grp(0,1); f=[]
    c=torch.compile(step,backend="openxla"); x=made(value=rank)
    f.append(out(lambda:c(x,G).tolist()))
    f.append(out(sync_g((made(2+(rank==1)),G))) if rank<2 else 0)
    if rank<2: f.append(out(lambda:c(x,K).tolist()))
    f.append(out(lambda:c(x,G).tolist())); f.append(out(lambda:c(x,dist.group.WORLD).tolist()))
    bar("q",3); N=grp(0,1,2); f.append(out(lambda:c(x,N).tolist())); dist.destroy_process_group(); init()
    f.append(out(lambda:c(x,dist.group.WORLD).tolist())); dist.destroy_process_group(); return f
def retry_at_once(rank):
    "0,1 fail in G (waiting outside graph) and retry at once in G2; 2 comes late to G, then G2"
    init(); G=grp(0,1,2); G2=grp(0,1,2); H=grp(2,3); f=[]
    if rank==2: time.sleep(.7); f.append(out(lambda:(dist.all_reduce(y:=made(value=2),group=H),y.tolist())[1]))
    if rank==3: f.append(out(lambda:(dist.all_reduce(y:=made(value=3),group=H),y.tolist())[1]))
    if rank<3:
        f.append(out(lambda:dist.all_reduce(made(2+(rank==1)),group=G)))
        f.append(out(lambda:(dist.all_reduce(y:=made(value=rank),group=G2),y.tolist())[1]))
    dist.destroy_process_group(); return f
def init_at_once(rank):
    f=[]
    for k in range(6):
        init(); G=grp(0,1)
        if rank==k%3: time.sleep(.1)
        if rank<2: f.append(type(out(lambda:dist.all_reduce(made(2+(rank==1)),group=G))[0]).__name__)
        with in_graph(): y=made(value=rank); dist.all_reduce(y); f.append(out(lambda:y.tolist()))
        dist.destroy_process_group()
    return f
def helper_sender_failed(rank):
    "0's helper waits for irecv of 2; 2 failed elsewhere (with 1) and never sends; 0's own thread works with 3"
    init(); G=grp(0,2); E=grp(1,2); H=grp(0,3); f=[]
    m=made(4); torch_xla.sync(wait=True)
    if rank==0:
        w=dist.irecv(m,2,group=G); o=[]; t=threading.Thread(target=lambda:o.append(out(w.wait))); t.start()
    if rank in(0,3):
        for i in range(8):
            y=made(value=i+rank); time.sleep(.25); f.append(out(lambda:(dist.all_reduce(y,group=H),y.tolist()[0])[1]))
    if rank in(1,2): f.append(out(lambda:dist.all_reduce(made(rank),group=E)))
    if rank==0: t.join(); f+=o
    bar("z",4); dist.destroy_process_group(); init(); z=made(value=rank); f.append(out(lambda:(dist.all_reduce(z),z.tolist())[1])); return f
def raises(rank):
    init(); G=grp(0,1); H=grp(2,3); y=made(value=rank)
    if rank==1: time.sleep(.3); raise KeyError("own")
    with in_graph(): dist.all_reduce(y,group=G if rank<2 else H); return out(lambda:y.tolist())
def own_pending(rank):
    "G=[0,1] is broken by 1; 0, with H=[0,2] pending, comes to G by several ways"
    import torch_xla_cc.distributed as td
    init(); f=[]
    ways=dict(isend=lambda G:dist.isend(made(2),1,group=G),irecv=lambda G:dist.irecv(made(2),1,group=G),objs=lambda G:dist.broadcast_object_list([1],group_src=0,group=G) ,
      mon=lambda G:td.monitored_barrier(G),func=lambda G:functional.all_reduce(made(2),"sum",G).tolist(),a2a=lambda G:dist.all_to_all_single(made(2),made(2),[1,1],[1,1],group=G),
      batch=lambda G:[w.wait() for w in dist.batch_isend_irecv([dist.P2POp(dist.isend,made(2),1,group=G)])])
    for k,way in ways.items():
        G=grp(0,1); H=grp(0,2); m=made(4 if rank==0 else 5)
        torch_xla.sync(wait=True)
        if rank==0:
            w=dist.irecv(m,1,group=G)
        bar(k,3)
        if rank==1: dist.isend(m,0,group=G); a=out(lambda:dist.recv(made(2),0,group=G))
        y=made(value=rank+1)
        if rank==0:
            a=out(w.wait)
        bar(k+"2",3)
        if rank!=1:
            with in_graph():
                a=out(lambda:dist.all_reduce(y,group=H))
                if rank==0: b=out(lambda:way(G)); b=str(b[0])[:24]
                else: b=0
                c=out(lambda:y.tolist()); f.append((k,str(a[0])[:24],b,str(c[0])[:24],c[1]))
        bar(k+"3",3)
    return f
N=dict(compiled_after=3,retry_at_once=4,init_at_once=3,helper_sender_failed=4,raises=4)
N["own_pending"]=3
for n in sys.argv[1].split(","): go(globals()[n],N[n],int(sys.argv[2]),limit=6)
