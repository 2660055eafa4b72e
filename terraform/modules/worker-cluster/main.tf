# One worker cluster: Autopilot, or Standard with the node pools of `pools`. Private, regional, in one fleet with the
# others. What the pools may look like is decided by module `accelerators`.

locals {
  standard = var.mode == "standard"
}

module "accelerators" {
  source = "../accelerators"

  region            = var.location
  mode              = var.mode
  pools             = var.pools
  written_fields    = { for name, pool in var.pools : name => keys(pool) }
  accelerator_zones = var.accelerator_zones
}

resource "google_container_cluster" "this" {
  project             = var.project_id
  name                = var.name
  location            = var.location
  deletion_protection = var.deletion_protection
  network             = var.network
  subnetwork          = var.subnet.id
  resource_labels     = var.labels

  # Terraform refuses `enable_autopilot = false` together with some of the fields below, so it is null for Standard.
  enable_autopilot         = local.standard ? null : true
  remove_default_node_pool = local.standard ? true : null
  initial_node_count       = local.standard ? 1 : null
  datapath_provider        = local.standard ? "ADVANCED_DATAPATH" : null
  enable_shielded_nodes    = local.standard ? true : null

  release_channel {
    channel = var.release_channel
  }

  ip_allocation_policy {
    cluster_secondary_range_name  = var.subnet.pods_range
    services_secondary_range_name = var.subnet.services_range
  }

  # People and Terraform come in through the fleet's Connect gateway, with their IAM identity.
  private_cluster_config {
    enable_private_nodes    = true
    enable_private_endpoint = true
  }

  master_authorized_networks_config {
    gcp_public_cidrs_access_enabled = false

    dynamic "cidr_blocks" {
      for_each = var.authorized_networks
      content {
        display_name = cidr_blocks.key
        cidr_block   = cidr_blocks.value
      }
    }
  }

  fleet {
    project = var.project_id
  }

  workload_identity_config {
    workload_pool = "${var.project_id}.svc.id.goog"
  }

  # Autopilot: the identity and the disks of the nodes that GKE makes.
  dynamic "cluster_autoscaling" {
    for_each = local.standard ? [] : [1]
    content {
      auto_provisioning_defaults {
        service_account   = var.node_service_account
        oauth_scopes      = ["https://www.googleapis.com/auth/cloud-platform"]
        boot_disk_kms_key = var.kms_key
      }
    }
  }

  # Standard: the first pool exists for minutes only, but it too runs with the least privilege.
  dynamic "node_config" {
    for_each = local.standard ? [1] : []
    content {
      service_account   = var.node_service_account
      oauth_scopes      = ["https://www.googleapis.com/auth/cloud-platform"]
      boot_disk_kms_key = var.kms_key
      resource_labels   = var.labels
    }
  }

  dynamic "database_encryption" {
    for_each = var.kms_key == null ? [] : [var.kms_key]
    content {
      state    = "ENCRYPTED"
      key_name = database_encryption.value
    }
  }

  monitoring_config {
    enable_components = ["SYSTEM_COMPONENTS", "POD", "DEPLOYMENT", "STATEFULSET", "STORAGE", "DCGM"]

    managed_prometheus {
      enabled = true
    }
  }

  logging_config {
    enable_components = ["SYSTEM_COMPONENTS", "WORKLOADS"]
  }

  cost_management_config {
    enabled = true
  }

  security_posture_config {
    mode               = "BASIC"
    vulnerability_mode = "VULNERABILITY_DISABLED"
  }

  maintenance_policy {
    recurring_window {
      start_time = var.maintenance_window.start
      end_time   = var.maintenance_window.end
      recurrence = var.maintenance_window.recurrence
    }
  }

  lifecycle {
    # The first pool is removed at once; its settings must not replace the cluster later.
    ignore_changes = [node_config, initial_node_count]

    precondition {
      condition     = length(module.accelerators.violations) == 0
      error_message = join("\n", module.accelerators.violations)
    }
  }
}

# Pods without accelerators: the agent, and what GKE needs. DWS needs one ordinary pool in the cluster.
resource "google_container_node_pool" "system" {
  count = local.standard ? 1 : 0

  project  = var.project_id
  cluster  = google_container_cluster.this.id
  name     = "system"
  location = var.location

  autoscaling {
    total_min_node_count = var.system_pool.min_nodes
    total_max_node_count = var.system_pool.max_nodes
    location_policy      = "BALANCED"
  }

  node_config {
    machine_type      = var.system_pool.machine_type
    service_account   = var.node_service_account
    oauth_scopes      = ["https://www.googleapis.com/auth/cloud-platform"]
    boot_disk_kms_key = var.kms_key
    resource_labels   = var.labels

    workload_metadata_config {
      mode = "GKE_METADATA"
    }

    shielded_instance_config {
      enable_secure_boot          = true
      enable_integrity_monitoring = true
    }
  }

  management {
    auto_repair  = true
    auto_upgrade = true
  }
}

resource "google_container_node_pool" "accelerators" {
  for_each = local.standard ? module.accelerators.pools : {}

  project        = var.project_id
  cluster        = google_container_cluster.this.id
  name           = each.key
  location       = var.location
  node_locations = each.value.zones

  # A fixed size is per zone, as GKE counts it; every other pool grows from its minimum.
  node_count         = each.value.node_count
  initial_node_count = each.value.node_count == null ? 0 : null

  dynamic "autoscaling" {
    for_each = each.value.node_count == null ? [1] : []
    content {
      total_min_node_count = each.value.min_nodes
      total_max_node_count = each.value.max_nodes
      location_policy      = "ANY"
    }
  }

  dynamic "queued_provisioning" {
    for_each = each.value.queued_provisioning ? [1] : []
    content {
      enabled = true
    }
  }

  dynamic "placement_policy" {
    # A slice of several hosts is one placement group with its topology.
    for_each = each.value.compact_placement || each.value.slice_nodes > 1 ? [1] : []
    content {
      type         = "COMPACT"
      tpu_topology = each.value.tpu_topology
    }
  }

  node_config {
    machine_type      = each.value.machine_type
    disk_size_gb      = each.value.disk_size_gb
    spot              = each.value.spot
    flex_start        = each.value.flex_start ? true : null
    max_run_duration  = each.value.max_run_duration_seconds == null ? null : "${each.value.max_run_duration_seconds}s"
    service_account   = var.node_service_account
    oauth_scopes      = ["https://www.googleapis.com/auth/cloud-platform"]
    boot_disk_kms_key = var.kms_key

    # Cost reports split by pool and by capacity class.
    resource_labels = merge(var.labels, {
      "meridian-pool"           = each.key
      "meridian-capacity-class" = each.value.capacity_class
    })

    # The labels that jobs of the public tutorial select.
    labels = each.value.queued_provisioning ? { "cloud.google.com/gke-queued" = "true" } : {}

    dynamic "guest_accelerator" {
      for_each = each.value.tpu ? [] : [1]
      content {
        type  = each.value.accelerator
        count = each.value.count

        gpu_driver_installation_config {
          gpu_driver_version = "LATEST"
        }
      }
    }

    reservation_affinity {
      consume_reservation_type = each.value.reservation == null ? "NO_RESERVATION" : "SPECIFIC_RESERVATION"
      key                      = each.value.reservation == null ? null : "compute.googleapis.com/reservation-name"
      values = each.value.reservation == null ? null : [
        try(each.value.reservation.project, null) == null
        ? each.value.reservation.name
        : "projects/${each.value.reservation.project}/reservations/${each.value.reservation.name}"
      ]
    }

    # Pods without accelerators must not take the place of pods with them. GKE itself adds the taint of queued pools.
    taint {
      key    = each.value.tpu ? "google.com/tpu" : "nvidia.com/gpu"
      value  = "present"
      effect = "NO_SCHEDULE"
    }

    workload_metadata_config {
      mode = "GKE_METADATA"
    }

    shielded_instance_config {
      enable_secure_boot          = !each.value.tpu
      enable_integrity_monitoring = true
    }

    gvnic {
      enabled = true
    }
  }

  management {
    auto_repair  = each.value.auto_repair
    auto_upgrade = true
  }

  # GKE has its own strategy for DWS pools and chooses it when none is written.
  dynamic "upgrade_settings" {
    for_each = each.value.dws ? [] : [coalesce(each.value.upgrade_strategy, "SURGE")]
    content {
      strategy        = upgrade_settings.value
      max_surge       = upgrade_settings.value == "SURGE" ? 0 : null
      max_unavailable = upgrade_settings.value == "SURGE" ? 1 : null

      dynamic "blue_green_settings" {
        for_each = upgrade_settings.value == "BLUE_GREEN" ? [1] : []
        content {
          node_pool_soak_duration = "3600s"
          standard_rollout_policy {
            batch_percentage    = 0.2
            batch_soak_duration = "300s"
          }
        }
      }
    }
  }

  lifecycle {
    # The autoscaler changes the count. A changed initial count would replace the pool.
    ignore_changes = [initial_node_count]
  }
}
