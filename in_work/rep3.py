import sys; sys.path[:0]=["tests/distributed"]
import world_runner, world_programs as wp, torch_xla_cc, time
def go(rank, programs, name):
    return world_runner.run(rank, programs, name)
if __name__=="__main__":
    world, seed, secs = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    p=[wp.program(seed, world, "threads")]
    b=time.time(); n=0
    while time.time()-b<secs:
        print("T ---- run", n, file=sys.stderr, flush=True)
        out=torch_xla_cc.launch(go,(p,f"x{n}"),nprocs=world); n+=1
        bad=[l for ls,_ in out for l in ls if not l.startswith("program")]
        if bad: print("T BAD", n, file=sys.stderr, flush=True); break
    print("done", n)
