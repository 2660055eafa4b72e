# Accelerators: which exist, where they are offered, and which node pools are possible.
#
# This module has no resources. It resolves the defaults of every pool, and lists every rule that a pool breaks. Other
# modules refuse to plan while the list isn't empty. Keep all rules about pools here: tests read each sentence.

locals {
  resolved = {
    for name, pool in var.pools : name => merge(pool, {
      known = contains(keys(local.catalogue), pool.accelerator)
      tpu   = startswith(pool.accelerator, "tpu-")
      # Dynamic Workload Scheduler: both kinds start from zero and give nodes back.
      dws = pool.queued_provisioning || pool.flex_start
      machine_type = coalesce(
        pool.machine_type,
        try(local.catalogue[pool.accelerator].default_machine_type, "unknown"),
      )
      offered_in = lookup(
        var.accelerator_zones,
        pool.accelerator,
        try(local.catalogue[pool.accelerator].zones[var.region], []),
      )
      capacity_class = (
        pool.reservation != null ? "reservation" :
        pool.queued_provisioning || pool.flex_start ? "flex-start" :
        pool.spot ? "spot" : "on-demand"
      )
      topology = pool.tpu_topology == null ? [] : [
        for side in split("x", pool.tpu_topology) : try(tonumber(side), 0)
      ]
    })
  }

  sized = {
    for name, pool in local.resolved : name => merge(pool, {
      zones   = length(pool.zones) > 0 ? pool.zones : pool.offered_in
      machine = lookup(local.machines, pool.machine_type, null)
      counts = try(local.machines[pool.machine_type].counts[pool.accelerator], [
        local.machines[pool.machine_type].count,
      ], [])
      chips = length(pool.topology) == 0 ? 0 : try(
        # The product of the sides, written out because Terraform has no product function.
        pool.topology[0] * try(pool.topology[1], 1) * try(pool.topology[2], 1), 0
      )
    })
  }

  pools = {
    for name, pool in local.sized : name => merge(pool, {
      # The number of accelerators can be chosen only for N1 machines.
      count = coalesce(pool.accelerator_count, try(pool.counts[0], 1))
      # Slices of several hosts have a fixed number of nodes.
      slice_nodes = pool.tpu && pool.chips > 0 ? ceil(pool.chips / try(pool.counts[0], 1)) : 0
      max_nodes = coalesce(
        pool.max_nodes,
        pool.tpu && pool.chips > 0 ? ceil(pool.chips / try(pool.counts[0], 1)) : 4,
      )
      auto_repair = coalesce(pool.auto_repair, !pool.dws)
    })
  }
}
