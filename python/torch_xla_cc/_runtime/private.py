"""Every private name of torch and torch_xla that the package uses, and where it is.

A name that has moved is mended here. `missing()` says which are not there, and `txcc doctor` shows
it; tests/python/test_private.py finds what is used past this file.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from torch_xla_cc._runtime import versions

# Imported from here by the name on the left: a module, or what stands in one behind the colon. Each
# is looked up when it is first imported.
_PLACES = {
    # torch_xla.
    "XLAC": "torch_xla:_XLAC",
    "bridge": "torch_xla._dynamo.dynamo_bridge",
    "fori_loop": "torch_xla.experimental.fori_loop",
    "scan": "torch_xla.experimental.scan",
    "pjrt": "torch_xla._internal.pjrt",
    "runtime": "torch_xla.runtime",
    "xla_backend": "torch_xla.distributed.xla_backend",
    # torch.distributed.
    "c10d": "torch.distributed.distributed_c10d",
    "c10d_bindings": "torch._C._distributed_c10d",
    "rendezvous": "torch.distributed.rendezvous",  # a function of that name stands before it
    "backend_plugins": "torch.distributed:Backend._plugins",
    "BackendPlugin": "torch.distributed:Backend._BackendPlugin",
    "functional_collectives": "torch.distributed._functional_collectives",
    "dtensor_random": "torch.distributed.tensor._random",
    "embedding_ops": "torch.distributed.tensor._ops._embedding_ops",
    "Shard": "torch.distributed.tensor:Shard",
    "DTensorSpec": "torch.distributed.tensor._dtensor_spec:DTensorSpec",
    "zero_optimizer": "torch.distributed.optim.zero_redundancy_optimizer",
    "math_ops": "torch.distributed.tensor._ops._math_ops",
    "fsdp_collectives": "torch.distributed.fsdp._fully_shard._fsdp_collectives",
    "fsdp_param": "torch.distributed.fsdp._fully_shard._fsdp_param",
    "fsdp_param_group": "torch.distributed.fsdp._fully_shard._fsdp_param_group",
    "flat_param": "torch.distributed.fsdp._flat_param",
    "fsdp1_common": "torch.distributed.fsdp._common_utils",
    "fsdp1_extensions": "torch.distributed.fsdp._fsdp_extensions",
    "fsdp1_init": "torch.distributed.fsdp._init_utils",
    "fsdp1_runtime": "torch.distributed.fsdp._runtime_utils",
    "pipeline_schedules": "torch.distributed.pipelining.schedules",
    "PipelineStageBase": "torch.distributed.pipelining.stage:_PipelineStageBase",
    # torch.compile and fx.
    "dynamo_callback": "torch._dynamo.callback",
    "dynamo_config": "torch._dynamo.config",
    "dynamo_utils": "torch._dynamo.utils",
    "convert_frame": "torch._dynamo.convert_frame",
    "eval_frame": "torch._dynamo.eval_frame",
    "assume_constant_result": "torch._dynamo:assume_constant_result",
    "MetricsContext": "torch._dynamo.metrics_context:MetricsContext",
    "CheckFunctionManager": "torch._dynamo.guards:CheckFunctionManager",
    "symbolic_trace": "torch.fx._symbolic_trace",
    "fx_traceback": "torch.fx.traceback",
    "disable_dynamo": "torch._compile:_disable_dynamo",
    # torch.
    "autograd_engine": "torch.autograd:Variable._execution_engine",
    "torch_c": "torch._C",
    "functionalization": "torch._C._functionalization",
    "functional_ops": "torch.ops:_c10d_functional",
    "from_functional_tensor": "torch:_from_functional_tensor",
    "is_functional_tensor": "torch:_is_functional_tensor",
    "functionalize_commit_update": "torch:_functionalize_commit_update",
    "functionalize_replace": "torch:_functionalize_replace",
    "functionalize_sync": "torch:_functionalize_sync",
    "run_backward": "torch.autograd.graph:_engine_run_backward",
    "storage_use_count": "torch._C:_storage_Use_Count",
    "register_device_module": "torch:_register_device_module",
    "pytree": "torch.utils._pytree",
    "is_traceable_wrapper_subclass": "torch.utils._python_dispatch:is_traceable_wrapper_subclass",
}

# What is used of those, by its own name.
_ATTRIBUTES = {
    "XLAC": (
        "_check_tensor_need_materialization",
        "_clear_pending_irs",
        "_clear_xla_counters",
        "_from_dlpack",
        "_get_graph_hash",
        "_get_ir_debug",
        "_get_tensors_xla_device_data_node",
        "_get_local_shards",
        "_get_use_eager_mode",
        "_get_xla_sharding_spec",
        "_get_xla_tensor_debug_info",
        "_get_xla_tensors_hlo",
        "_get_xla_tensors_hlo_proto",
        "_get_xla_tensors_text",
        "_on_ready_callback",
        "_replace_xla_tensor",
        "_run_cached_graph",
        "_set_ir_debug",
        "_set_use_eager_mode",
        "_to_dlpack",
        "_unsafe_buffer_pointer",
        "_xla_all_gather",
        "_xla_all_gather_out",
        "_xla_all_reduce",
        "_xla_all_reduce_inplace",
        "_xla_counter_names",
        "_xla_counter_value",
        "_xla_device_kind",
        "_xla_get_cpu_tensors",
        "_xla_get_default_device",
        "_xla_get_devices",
        "_xla_get_replication_devices",
        "_xla_get_replication_devices_count",
        "_xla_get_tensor_id",
        "_xla_increment_counter",
        "_xla_op_computation_from_module_proto",
        "_xla_reduce_scatter",
        "_xla_reduce_scatter_coalesced",
        "_xla_reduce_scatter_coalesced_out",
        "_xla_reduce_scatter_out",
        "_xla_runtime_is_initialized",
        "_xla_set_default_device",
        "_xla_set_replication_devices",
        "_xla_step_marker",
        "_xla_sync_live_tensors",
        "_xla_sync_multi",
        "_xla_tensors_report",
        "_xla_user_computation",
        "_xla_wait_device_ops",
        "_xla_warm_up_cache",
    ),
    "fori_loop": ("_xla_while_loop",),
    "scan": ("value_and_grad_partitioned", "_scan_impl_flat"),
    "c10d": (
        "_World",
        "_coalescing_manager",
        "_default_pg_init_method",
        "_get_default_group",
        "_get_default_timeout",
        "_hash_ranks_to_str",
        "_new_process_group_helper",
        "_rank_not_in_group",
        "_world",
    ),
    "c10d_bindings": ("_set_thread_isolation_mode",),
    "convert_frame.compile_lock": ("_is_owned", "_release_save", "_acquire_restore"),
    "dtensor_random": ("_RNGStateTracker", "_rng_tracker"),
    "dynamo_utils": ("_METRICS_CONTEXT",),
    "embedding_ops": ("MaskBuffer", "_MaskPartial"),
    "flat_param": (
        "_alloc_storage",
        "_data_ptr_allocated",
        "_free_storage",
        "_same_storage",
        "_same_storage_size",
        "_storage_size_allocated",
    ),
    "flat_param.FlatParamHandle": (
        "_alloc_padded_unsharded_flat_param",
        "_check_low_precision_shard",
        "_check_on_compute_device",
        "_free_low_precision_sharded_param",
        "_free_unsharded_flat_param",
        "_get_shard",
        "_init_shard_metadata",
        "_use_sharded_views",
        "_use_unsharded_flat_param",
        "_use_unsharded_views",
    ),
    "fsdp_param": ("_chunk_with_empty",),
    "fsdp_param.FSDPParam": ("_init_sharded_param",),
    "fsdp1_common": ("_FSDPDeviceHandle",),
    "fsdp1_extensions": ("_create_chunk_sharded_tensor",),
    "fsdp1_init": ("_move_states_to_device",),
    "fsdp1_runtime": ("_catch_all_reshard", "_reshard", "_should_free_in_backward"),
    "functional_collectives": ("_maybe_wrap_tensor",),
    "math_ops": ("_skip_dim",),
    "pjrt": ("_run_singleprocess",),
    "pipeline_schedules": ("_batch_p2p",),
    "PipelineStageBase": ("_get_init_p2p_neighbors_ops",),
    "rendezvous": ("_rendezvous_handlers",),
    "runtime": ("_ORDINAL", "_WORLD_SIZE", "_init_world_size_ordinal"),
    "Shard": ("_local_shard_size_and_offset", "_replicate_to_shard", "_shard_tensor"),
    "torch_c": (
        "_ForceDispatchKeyGuard",
        "_dispatch_tls_local_exclude_set",
        "_dispatch_tls_local_include_set",
        "_is_alias_of",
    ),
    "xla_backend": ("_orig_new_group_fn",),
    "zero_optimizer": ("_broadcast_object", "_recursive_copy_to_device"),
}


def _resolve(place: str) -> Any:  # noqa: ANN401 (modules, classes, functions)
    module, _, path = place.partition(":")
    found: Any = importlib.import_module(module)
    for name in filter(None, path.split(".")):
        found = getattr(found, name)
    return found


def __getattr__(name: str) -> Any:  # noqa: ANN401 (as above)
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        found = _resolve(_PLACES[name])
    except (ImportError, AttributeError) as error:
        raise versions.UnsupportedVersion(
            f"torch_xla_cc uses {_PLACES[name]}, and it is not there: {error}. {versions.of(())}"
        ) from error
    globals()[name] = found
    return found


def missing() -> Iterator[str]:
    """What is not where it was."""
    for place in _PLACES.values():
        try:
            _resolve(place)
        except (ImportError, AttributeError):
            yield place
    for path, attributes in _ATTRIBUTES.items():
        name, _, rest = path.partition(".")
        place = _PLACES[name] + (f":{rest}" if rest else "")
        for attribute in attributes:
            try:
                found: Any = _resolve(place)
            except (ImportError, AttributeError):
                break  # said above
            if not hasattr(found, attribute):
                yield f"{place}.{attribute}"
