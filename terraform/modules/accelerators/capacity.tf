# What a pod can get from one node: the machine minus what GKE reserves for the kubelet and the system.
#
# Source of the shares: GKE documentation, "Plan node sizes". Daemon sets take some more; they are not subtracted here.

locals {
  # What the agent can make grow. It asks by ProvisioningRequest only, and GKE answers those for queued pools only. Pools
  # of another kind grow for pods that wait, and Meridian makes a pod only where there is room for it already.
  growing = merge(
    { for name, p in local.pools : name => p if p.queued_provisioning && var.mode != "autopilot" },
    { for name, p in local.autopilot_pools : name => p if var.mode == "autopilot" },
  )

  # Autopilot makes its nodes itself, so nobody writes pools. As in the public tutorial, a region gets the T4s that a new
  # project has quota for. No zones are needed: GKE chooses one that has them.
  autopilot_accelerator = "nvidia-tesla-t4"
  autopilot_offers_it = length(lookup(
    var.accelerator_zones,
    local.autopilot_accelerator,
    try(local.catalogue[local.autopilot_accelerator].zones[var.region], []),
  )) > 0
  autopilot_pools = {
    for name in local.autopilot_offers_it ? ["t4"] : [] : name => {
      accelerator    = local.autopilot_accelerator
      tpu            = false
      tpu_topology   = null
      machine        = local.machines[local.catalogue[local.autopilot_accelerator].default_machine_type]
      count          = 1
      capacity_class = "flex-start"
      flex_start     = false
      max_nodes      = local.autopilot_nodes_max
    }
  }
  # Quota of a new project in a region.
  autopilot_nodes_max = 4

  mib_per_gb = 1024
  # Kept back for eviction on every node.
  eviction_mib = 100

  # Memory, by bands of size: 25 % of the first 4 GB, 20 % of the next 4, 10 % of the next 8, 6 % up to 128, 2 % above.
  allocatable_memory_mib = {
    for name, p in local.growing : name => floor(
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
    for name, p in local.growing : name => floor(
      1000 * try(p.machine.cpu, 0) - (
        60 * min(try(p.machine.cpu, 0), 1)
        + 10 * max(min(try(p.machine.cpu, 0) - 1, 1), 0)
        + 5 * max(min(try(p.machine.cpu, 0) - 2, 2), 0)
        + 2.5 * max(try(p.machine.cpu, 0) - 4, 0)
      )
    )
  }

  provisionable = [
    for name, p in local.growing : {
      name          = name
      capacityClass = p.capacity_class
      labels = merge(
        p.tpu ? {
          "cloud.google.com/gke-tpu-accelerator" = p.accelerator
          "cloud.google.com/gke-tpu-topology"    = p.tpu_topology
          } : {
          "cloud.google.com/gke-accelerator" = p.accelerator
        },
        # GKE names the pools that it makes for Autopilot, and has no label of its own for queued ones.
        var.mode == "autopilot" ? {} : { "cloud.google.com/gke-nodepool" = name, "cloud.google.com/gke-queued" = "true" },
        p.flex_start ? { "cloud.google.com/gke-flex-start" = "true" } : {},
      )
      # Jobs that don't tolerate these never get a node of the pool, so none may be asked for them.
      taints = [
        { key = p.tpu ? "google.com/tpu" : "nvidia.com/gpu", value = "present", effect = "NoSchedule" },
        { key = "cloud.google.com/gke-queued", value = "true", effect = "NoSchedule" },
      ]
      perNode = merge(
        { (p.tpu ? "google.com/tpu" : "nvidia.com/gpu") = tostring(p.count) },
        # The sizes of TPU machines are not in the catalogue.
        try(p.machine.cpu, 0) > 0 ? {
          cpu    = "${local.allocatable_cpu_milli[name]}m"
          memory = "${local.allocatable_memory_mib[name]}Mi"
        } : {},
      )
      maxNodes = p.max_nodes
    }
  ]
}
