# The cluster of the manager: regional, Autopilot, private. It runs the manager and no jobs.

resource "google_container_cluster" "this" {
  project             = var.project_id
  name                = var.name
  location            = var.location
  enable_autopilot    = true
  deletion_protection = var.deletion_protection
  network             = var.network
  subnetwork          = var.subnet.id
  resource_labels     = var.labels

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

  cluster_autoscaling {
    auto_provisioning_defaults {
      service_account   = var.node_service_account
      oauth_scopes      = ["https://www.googleapis.com/auth/cloud-platform"]
      boot_disk_kms_key = var.kms_key
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
    enable_components = ["SYSTEM_COMPONENTS", "POD", "DEPLOYMENT", "STATEFULSET", "STORAGE"]

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
}
