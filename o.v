/work/main/.venv/bin/python3: can't open file '/work/main/v.py': [Errno 2] No such file or directory
/work/main/.venv/bin/python3: can't open file '/work/main/v.py': [Errno 2] No such file or directory
E1128 10:48:13.654000 11938 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode: 2) local_rank: 0 (pid: 11942) of binary: /work/main/.venv/bin/python3
Traceback (most recent call last):
  File "/work/main/.venv/bin/torchrun", line 8, in <module>
    sys.exit(main())
             ^^^^^^
  File "/work/main/.venv/lib/python3.11/site-packages/torch/distributed/elastic/multiprocessing/errors/__init__.py", line 357, in wrapper
    return f(*args, **kwargs)
           ^^^^^^^^^^^^^^^^^^
  File "/work/main/.venv/lib/python3.11/site-packages/torch/distributed/run.py", line 936, in main
    run(args)
  File "/work/main/.venv/lib/python3.11/site-packages/torch/distributed/run.py", line 927, in run
    elastic_launch(
  File "/work/main/.venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 156, in __call__
    return launch_agent(self._config, self._entrypoint, list(args))
           ^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  File "/work/main/.venv/lib/python3.11/site-packages/torch/distributed/launcher/api.py", line 293, in launch_agent
    raise ChildFailedError(
torch.distributed.elastic.multiprocessing.errors.ChildFailedError: 
============================================================
v.py FAILED
------------------------------------------------------------
Failures:
[1]:
  time      : 2026-11-28_10:48:13
  host      : localhost
  rank      : 1 (local_rank: 1)
  exitcode  : 2 (pid: 11943)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2026-11-28_10:48:13
  host      : localhost
  rank      : 0 (local_rank: 0)
  exitcode  : 2 (pid: 11942)
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
