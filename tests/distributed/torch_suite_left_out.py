"""The tests of PyTorch's suite that are not run against xla_cc, by reason."""

from pathlib import Path

import torch_suite

LEFT_OUT: dict[str, list[str]] = {
    "PyTorch itself skips it, as failing or flaky; or for every backend but NCCL, whose metadata "
    "it reads.": [
        "test_broadcast_object_list",
        "test_ddp_has_finalized",
        "test_ddp_hook_pickling_powerSGD",
        "test_ddp_profiling_autograd_profiler",
        "test_ddp_profiling_execution_trace",
        "test_ddp_sync_bn_training_vs_eval",
    ],
    "Needs torchvision, which torch_xla_cc does not.": ["test_SyncBatchNorm_process_group"],
    '`SyncBatchNorm` takes no XLA tensors: its forward raises "SyncBatchNorm expected input tensor '
    'to be on GPU or XPU or privateuseone".': [
        "test_DistributedDataParallel_SyncBatchNorm",
        "test_DistributedDataParallel_SyncBatchNorm_2D_Input",
        "test_DistributedDataParallel_SyncBatchNorm_Channels_Last",
        "test_DistributedDataParallel_SyncBatchNorm_Diff_Input_Sizes_Running_Value",
        "test_DistributedDataParallel_SyncBatchNorm_Diff_Input_Sizes_gradient",
        "test_DistributedDataParallel_SyncBatchNorm_No_Affine",
        "test_DistributedDataParallel_SyncBatchNorm_Single_Input_Per_Process",
        "test_DistributedDataParallel_SyncBatchNorm_half",
        "test_ddp_uneven_inputs_stop_iteration_sync_bn",
    ],
    "Needs streams of CUDA: `torch.cuda.Stream`, or the `torch.Stream` that DDP makes for "
    "optimizers in the backward pass, which there is none of for XLA.": [
        "test_DistributedDataParallel_non_default_stream",
        "test_ddp_apply_optim_in_backward",
        "test_ddp_apply_optim_in_backward_grad_as_bucket_view_false",
        "test_ddp_apply_optim_in_backward_ignored_params",
    ],
    "DDP's mixed precision frees the storage of parameters, and XLA tensors have none: \"Attempted "
    'to call resize_() on an invalid python storage".': [
        "test_ddp_native_mixed_precision_grad_as_bucket_view_no_set_grad_none",
        "test_ddp_native_mixed_precision_grad_as_bucket_view_set_grad_to_none",
        "test_ddp_native_mixed_precision_ignored_params",
        "test_ddp_native_mixed_precision_no_grad_as_bucket_view_no_set_grad_none",
        "test_ddp_native_mixed_precision_no_grad_as_bucket_view_set_grad_to_none",
    ],
    "Asserts times that DDP measures on CPU and CUDA only: its logger says so, and leaves 0.": [
        "test_ddp_logging_data_cpu",
        "test_ddp_logging_data_gpu",
    ],
    "Compiles with Inductor, which has no XLA device: \"KeyError: 'xla'\".": [
        "test_ddp_compile_static_graph"
    ],
    "Asserts that the device's number is the rank; a process has one device, of number 0.": [
        "test_ddp_device"
    ],
    "Did not end on two busy cores, whose time goes to compiling: autocast in 75 s, sixteen "
    "trainings in 350 s (the first ones went well), a convolution net in 100 s (113 s for its "
    "backward pass, while rank 0 gives up), 100 steps of PowerSGD in 150 s.": [
        "test_DistributedDataParallel",
        "test_DistributedDataParallel_with_amp_and_grad_is_view",
        "test_ddp_hook_parity_powerSGD",
        "test_ddp_uneven_inputs",
    ],
    "Makes a `ProcessGroupNCCL` by its class, after a rendezvous at a port that torchrun does not "
    "serve, in which it hangs.": ["test_nccl_high_priority_stream"],
    'There are no sparse tensors on XLA: `sparse_coo_tensor` raises "Could not run '
    "'aten::_sparse_coo_tensor_with_dims_and_tensors'\".": [
        "test_compute_bucket_assignment_by_size_sparse_error_with_logger",
        "test_compute_bucket_assignment_by_size_sparse_error_without_logger",
        "test_sparse_all_reduce_sum",
        "test_sparse_all_reduce_sum_cuda",
    ],
    '`torch.distributed.monitored_barrier` raises "monitored_barrier is only implemented for GLOO '
    'backend".': [
        "test_monitored_barrier_failure_order",
        "test_monitored_barrier_gloo",
        "test_monitored_barrier_gloo_subgroup",
        "test_monitored_barrier_wait_all_ranks",
    ],
    "Asserts the words of gloo's, or of NCCL's, message: \"Rank 0 timed out in monitoredBarrier\", "
    '"caught collective operation timeout".': [
        "test_monitored_barrier_allreduce_hang",
        "test_monitored_barrier_allreduce_hang_wait_all_ranks",
        "test_monitored_barrier_gloo_rank_0_timeout",
    ],
}

# Run, but by hand: TORCH_XLA_CC_HUNT=2. Of DistributedDataParallel, most of whose tests are not
# slow, each compiles for 8 to 90 s on two busy cores.
SLOW = [
    "test_DistributedDataParallelCPU",
    "test_DistributedDataParallelCPU_grad_is_view",
    "test_accumulate_gradients_no_sync",
    "test_accumulate_gradients_no_sync_allreduce_hook",
    "test_accumulate_gradients_no_sync_allreduce_with_then_hook",
    "test_accumulate_gradients_no_sync_grad_is_view",
    "test_ddp_buffer_hook_allreduce",
    "test_ddp_control_flow_different_across_ranks",
    "test_ddp_hook_parity_allreduce",
    "test_ddp_hook_parity_allreduce_process_group",
    "test_ddp_hook_parity_post_localSGD",
    "test_ddp_ignore_params_arg",
    "test_ddp_model_diff_shape_across_ranks",
    "test_ddp_multiple_nested_unused_params_error",
    "test_output_unused_in_loss_dict_module",
    "test_post_localSGD_optimizer_parity",
    "test_post_localSGD_optimizer_parity_grad_is_view",
    "test_post_localSGD_optimizer_step_reload",
]

DOCUMENT = Path(__file__).parents[2] / "docs/torch_suite.md"
_HEAD = """\
# PyTorch's own tests of backends

`torch.testing._internal.distributed.distributed_test`, in the wheel of torch, has the tests that
PyTorch runs against gloo, MPI and NCCL. Of its {count} tests {run} are run against `xla_cc`, with
their own code and assertions: four processes, each with an XLA client of its own on CPU.

    pytest tests/distributed/test_torch_suite.py -k scatter
    TORCH_XLA_CC_HUNT=2 pytest tests/distributed/test_torch_suite.py  # with {slow} that take long

The tests of DistributedDataParallel train on XLA tensors, and pass but for those named below.

`tests/distributed/torch_suite.py` adapts where tensors are, and what is skipped. What a test makes,
or moves to a GPU, is on the XLA device; a test for CPU tensors and its twin for CUDA are then both
run on XLA tensors. A test for NCCL only, or for MPI only, is run as well.

{out} tests are left out, named in `tests/distributed/torch_suite_left_out.py`, from which this page
is generated: `python tests/distributed/torch_suite_left_out.py`. Each reason was seen in a run.

## Left out
"""


def document() -> str:
    """The page docs/torch_suite.md."""
    count = len(torch_suite.names())
    out = sum(map(len, LEFT_OUT.values()))
    parts = [_HEAD.format(count=count, run=count - out, out=out, slow=len(SLOW))]
    for reason, names in LEFT_OUT.items():
        parts.append(f"\n{reason} ({len(names)})\n\n")
        parts.extend(f"- `{name}`\n" for name in names)
    return "".join(parts)


if __name__ == "__main__":
    DOCUMENT.write_text(document())
