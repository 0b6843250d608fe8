from h import *
import random, itertools, os
os.environ
seed0,count=int(sys.argv[1]),int(sys.argv[2]); cont=sys.argv[3]=="cont"; WORLD=4
def plan(seed):
    r=random.Random(seed); n=r.randint(2,4)
    gs=[tuple(sorted(r.sample(range(WORLD),r.randint(2,3)))) for _ in range(n)]
    evs=[r.randrange(n) for _ in range(r.randint(4,9))]
    syncs={i for i in range(len(evs)) if r.random()<.3}|{len(evs)-1}
    e=r.randrange(len(evs)); who=r.choice(gs[evs[e]]); kind=r.choice(["shape","barrier","max"])
    lazy=r.random()<.8; slow=[r.choice([0,0,.1,.3]) for _ in range(WORLD)]; slow_at=[r.randrange(len(evs)) for _ in range(WORLD)]
    reads=r.random()<.5
    return gs,evs,syncs,e,who,kind,lazy,slow,slow_at,reads
def val(rank,i): return float((i+1)*1000+ (1,10,100,300)[rank])
def prog(rank):
    log=[]
    for k in range(count):
        seed=seed0+k; gs,evs,syncs,e,who,kind,lazy,slow,slow_at,reads=plan(seed)
        bad=[]; init(); G=[dist.new_group(list(g),timeout=timedelta(seconds=T)) for g in gs]
        b=time.monotonic(); heard=[]
        def check(xs):
            for i,x in xs:
                try: v=x.tolist()
                except torch_xla_cc.RanksDisagree as err: heard.append(str(err)[:60]); continue
                want=sum(val(m,i) for m in gs[evs[i]])
                if i==e and rank==who: continue
                if not(v[0]==want or v[0]!=v[0] ): bad.append(f"event {i}: {v} not {want}")
        xs=[]; stop=False
        import contextlib
        with (in_graph() if lazy else contextlib.nullcontext()):
            for i,g in enumerate(evs):
                if stop: break
                if slow_at[rank]==i: time.sleep(slow[rank])
                if rank in gs[g]:
                    x=torch.full((2,),val(rank,i),device=torch_xla.device())
                    t=time.monotonic()
                    try:
                        if i==e and rank==who:
                            if kind=="barrier": dist.barrier(group=G[g])
                            elif kind=="shape": dist.all_reduce(torch.ones(5,device=torch_xla.device()),group=G[g])
                            else: dist.all_reduce(x,dist.ReduceOp.MAX,group=G[g])
                        else:
                            dist.all_reduce(x,group=G[g]); xs.append((i,x))
                    except Exception as err:
                        heard.append(f"{i} {type(err).__name__} {time.monotonic()-t:.1f}"); stop=not cont
                        if isinstance(err,torch_xla_cc.CollectiveTimeoutError) or not isinstance(err,torch_xla_cc.RanksDisagree): bad.append(f"event {i} {type(err).__name__} {str(err)[:90]}")
                if i in syncs and lazy and not stop:
                    t=time.monotonic()
                    try:
                        if reads and xs: xs[-1][1].tolist()
                        else: torch_xla.sync()
                    except Exception as err:
                        heard.append(f"s{i} {type(err).__name__} {time.monotonic()-t:.1f}"); stop=not cont
                        if isinstance(err,torch_xla_cc.CollectiveTimeoutError) or not isinstance(err,torch_xla_cc.RanksDisagree): bad.append(f"sync {i} {type(err).__name__} {str(err)[:90]}")
            check(xs)
        s=time.monotonic()-b
        if s>2.9: bad.append(f"took {s:.1f}")
        dist.destroy_process_group(); bar(f"e{k}",WORLD)
        if rank==0: print("seed",seed,file=sys.stderr,flush=True)
        try:
            init(); z=made(value=rank); dist.all_reduce(z); z=z.tolist()
            if z!=[6,6]: bad.append(f"after: {z}")
        except Exception as err: bad.append(f"after: {type(err).__name__} {str(err)[:90]}")
        bar(f"f{k}",WORLD)
        try: dist.destroy_process_group()
        except Exception as err: bad.append("destroy "+str(err)[:60])
        if bad:
            with _l: print(f"SEED {seed} rank {rank}: {bad} heard {heard}",flush=True)
            if rank==who: print("   ",plan(seed),flush=True)
        bar(f"g{k}",WORLD)
    return "done"
from h import _l
go(prog,WORLD,1,limit=3)
