# What a pod can get from one node: the machine minus what GKE reserves for the kubelet and the system.
#
# Source of the shares: GKE documentation, "Plan node sizes". Daemon sets take some more; they are not subtracted here.

locals {
  mib_per_gb = 1024
  # Kept back for eviction on every node.
  eviction_mib = 100

  # Memory, by bands of size: 25 % of the first 4 GB, 20 % of the next 4, 10 % of the next 8, 6 % up to 128, 2 % above.
  allocatable_memory_mib = {
    for name, p in local.pools : name => floor(
      try(p.machine.memory, 0) * local.mib_per_gb - local.eviction_mib - local.mib_per_gb * (
        0.25 * min(try(p.machine.memory, 0), 4)
        + 0.20 * max(min(try(p.machine.memory, 0) - 4, 4), 0)
        + 0.10 * max(min(try(p.machine.memory, 0) - 8, 8), 0)
        + 0.06 * max(min(try(p.machine.memory, 0) - 16, 112), 0)
        + 0.02 * max(try(p.machine.memory, 0) - 128, 0)
      )
    )
  }

  # CPU: 6 % of the first core, 1 % of the second, 0.5 % of the next two, 0.25 % of the others.
  allocatable_cpu_milli = {
    for name, p in local.pools : name => floor(
      1000 * try(p.machine.cpu, 0) - (
        60 * min(try(p.machine.cpu, 0), 1)
        + 10 * max(min(try(p.machine.cpu, 0) - 1, 1), 0)
        + 5 * max(min(try(p.machine.cpu, 0) - 2, 2), 0)
        + 2.5 * max(try(p.machine.cpu, 0) - 4, 0)
      )
    )
  }

  provisionable = [
    for name, p in local.pools : {
      name          = name
      capacityClass = p.capacity_class
      labels = merge(
        p.tpu ? {
          "cloud.google.com/gke-tpu-accelerator" = p.accelerator
          "cloud.google.com/gke-tpu-topology"    = p.tpu_topology
          } : {
          "cloud.google.com/gke-accelerator" = p.accelerator
        },
        { "cloud.google.com/gke-nodepool" = name },
        p.queued_provisioning ? { "cloud.google.com/gke-queued" = "true" } : {},
        p.spot ? { "cloud.google.com/gke-spot" = "true" } : {},
      )
      perNode = merge(
        { (p.tpu ? "google.com/tpu" : "nvidia.com/gpu") = tostring(p.count) },
        # The sizes of TPU machines are not in the catalogue.
        try(p.machine.cpu, 0) > 0 ? {
          cpu    = "${local.allocatable_cpu_milli[name]}m"
          memory = "${local.allocatable_memory_mib[name]}Mi"
        } : {},
      )
      # A fixed size is per zone.
      maxNodes = p.node_count == null ? p.max_nodes : p.node_count * length(p.zones)
    }
  ]
}
