cd /tmp/brk; PYTHONPATH=/work/main/python TORCH_XLA_CC_FLIGHT_RECORDER=0 nice -n 5 timeout 120 /work/main/.venv/bin/python "$@" >$1.out 2>$1.err; echo rc $?; grep -v '^$' $1.out
