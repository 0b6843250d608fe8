"""The files of examples/cluster: two hosts are tried; of others it is checked what can be, here."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch_xla.core.xla_env_vars as xenv
from torch_xla._internal import tpu

ROOT = Path(__file__).parents[2]
CLUSTER = ROOT / "examples/cluster"
PAGE = (ROOT / "docs/clusters.md").read_text()
SCRIPTS = sorted([*CLUSTER.glob("*.sh"), *CLUSTER.glob("*.sbatch")])
MANIFESTS = sorted((CLUSTER / "kubernetes").glob("*.yaml"))


def run(command, **env):
    return subprocess.run(
        list(map(str, command)),
        env={**os.environ, "PYTHONPATH": str(ROOT / "python"), "PYTHON": sys.executable, **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=200,
    )


@pytest.mark.parametrize(("fails", "code"), [(-1, 0), (1, 1)], ids=["goes well", "a rank fails"])
def test_two_hosts(tmp_path, fails, code):
    command = [CLUSTER / "two_hosts.sh", CLUSTER / "train.py", "--steps=6", f"--fail={fails}"]
    done = run(command, NPROC_PER_NODE="1", LOGS=str(tmp_path), TORCH_XLA_CC_TIMEOUT_S="60")
    if done.returncode == 77:
        pytest.skip(done.stdout.strip())
    assert done.returncode == code, done.stdout
    logs = {path.parts[-5]: path for path in tmp_path.glob("node*/*/attempt_0/0/stdout.log")}
    assert set(logs) == {"node0", "node1"}
    for node in (0, 1):
        assert f"rank {node} of 2: step 0, loss " in logs[f"node{node}"].read_text()
        said = f"host {node} | [default0]:"
        if code == 0:
            assert f"{said}rank {node} of 2: done" in done.stdout
        elif node == fails:
            assert f"{said}[rank1]: ValueError: rank 1 fails in step 3" in done.stdout
        else:
            # It hears that the device process of rank 1 has ended; once in a while, what gloo says.
            lines = [line for line in done.stdout.splitlines() if line.startswith(said)]
            assert any("[rank0]: " in line and "Error" in line for line in lines), lines


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_scripts_are_bash(script):
    assert run(["bash", "-n", script]).returncode == 0
    assert os.access(script, os.X_OK) == (script.suffix == ".sh")


@pytest.mark.parametrize("script", ["slurm.sbatch", "slurm_mpi.sbatch"])
def test_what_slurm_is_asked_for(script):
    """The options come before the first command, or SLURM does not see them."""
    lines = (CLUSTER / script).read_text().splitlines()
    first = next(i for i, line in enumerate(lines) if line and not line.startswith("#"))
    assert all(i < first for i, line in enumerate(lines) if line.startswith("#SBATCH"))


def objects(manifest):
    """What a manifest is of; of a JobSet, for which there is no schema here, its jobs."""
    yaml = pytest.importorskip("yaml")
    for thing in yaml.safe_load_all(manifest.read_text()):
        if thing["kind"] != "JobSet":
            yield thing
            continue
        assert thing["apiVersion"] == "jobset.x-k8s.io/v1alpha2"
        assert set(thing["spec"]) <= {"failurePolicy", "replicatedJobs"}
        for jobs in thing["spec"]["replicatedJobs"]:
            assert set(jobs) == {"name", "replicas", "template"}
            of_job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": jobs["name"]}}
            yield {**of_job, **jobs["template"]}


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.name)
def test_manifests(manifest):
    jobs = 0
    for thing in objects(manifest):
        if thing["kind"] != "Job":
            continue
        jobs += 1
        spec = thing["spec"]
        assert spec["completionMode"] == "Indexed"
        assert spec["completions"] == spec["parallelism"]
        (container,) = spec["template"]["spec"]["containers"]
        values = {entry["name"]: entry.get("value") for entry in container["env"]}
        nodes = values.get("NNODES", "4")
        assert int(nodes) == spec["completions"]
        script = container["args"][0]
        assert "--nnodes=" in script and run(["bash", "-n", "-c", script]).returncode == 0
    assert jobs == 1


@pytest.mark.parametrize("manifest", MANIFESTS, ids=lambda path: path.name)
def test_manifests_by_the_schemas_of_kubernetes(manifest):
    validator = pytest.importorskip("kubernetes_validate", reason="kubernetes-validate is missing")
    for thing in objects(manifest):
        validator.validate(thing, validator.latest_version(), strict=True)


def test_the_page_says_what_torch_xla_reads():
    source = Path(tpu.__file__).read_text()
    names = {name for name in vars(xenv) if f"xenv.{name}" in source}
    variables = {getattr(xenv, name) for name in names} - {xenv.PJRT_LOCAL_PROCESS_RANK}
    # How it calls parts of its metadata is not of the environment.
    variables -= {xenv.ACCELERATOR_TYPE, xenv.WORKER_ID}
    assert len(variables) > 8
    assert sorted(name for name in variables if f"`{name}`" not in PAGE) == []
