# What a worker cluster and its pools look like to Google.

mock_provider "google" {
  source = "../../mocks/google"
}

variables {
  project_id           = "example-project-1"
  name                 = "worker-europe-west4"
  location             = "europe-west4"
  network              = "projects/example-project-1/global/networks/dws-network"
  subnet               = { id = "subnet", pods_range = "pods", services_range = "services" }
  node_service_account = "nodes@example-project-1.iam.gserviceaccount.com"
  labels               = { app = "meridian" }
}

run "autopilot" {
  command = plan

  assert {
    condition     = google_container_cluster.this.enable_autopilot && length(google_container_node_pool.system) == 0
    error_message = "Autopilot has no pools"
  }

  assert {
    condition = (
      google_container_cluster.this.private_cluster_config[0].enable_private_nodes
      && google_container_cluster.this.private_cluster_config[0].enable_private_endpoint
    )
    error_message = "nodes and control plane are private"
  }

  assert {
    condition     = google_container_cluster.this.deletion_protection
    error_message = "a cluster is protected by default"
  }

  assert {
    condition     = google_container_cluster.this.workload_identity_config[0].workload_pool == "example-project-1.svc.id.goog"
    error_message = "pods have identities"
  }

  assert {
    condition     = google_container_cluster.this.monitoring_config[0].managed_prometheus[0].enabled
    error_message = "metrics go to Managed Prometheus"
  }

  assert {
    condition     = google_container_cluster.this.fleet[0].project == "example-project-1"
    error_message = "the cluster is in the fleet"
  }

  assert {
    condition     = length(google_container_cluster.this.database_encryption) == 0
    error_message = "without a key, Google's keys are used"
  }
}

run "standard_with_every_kind_of_pool" {
  command = plan

  variables {
    mode    = "standard"
    kms_key = "projects/example-keys-1/locations/europe-west4/keyRings/r/cryptoKeys/k"
    pools = {
      "t4-dws"    = { accelerator = "nvidia-tesla-t4", queued_provisioning = true }
      "l4-flex"   = { accelerator = "nvidia-l4", flex_start = true, max_run_duration_seconds = 86400 }
      "a100-spot" = { accelerator = "nvidia-tesla-a100", spot = true, max_nodes = 8 }
      "l4-fixed"  = { accelerator = "nvidia-l4", node_count = 2, upgrade_strategy = "BLUE_GREEN" }
      "v6e"       = { accelerator = "tpu-v6e-slice", tpu_topology = "4x4" }
      "h100" = {
        accelerator = "nvidia-h100-80gb", zones = ["europe-west4-b"], reservation = { name = "calendar-1", project = "owner-1" }
      }
    }
  }

  assert {
    condition     = google_container_cluster.this.enable_autopilot != true && google_container_cluster.this.remove_default_node_pool
    error_message = "a Standard cluster has no default pool"
  }

  assert {
    condition     = google_container_node_pool.system[0].autoscaling[0].total_min_node_count == 1
    error_message = "DWS needs one ordinary pool"
  }

  assert {
    condition     = google_container_cluster.this.database_encryption[0].state == "ENCRYPTED"
    error_message = "Secrets are encrypted with the key"
  }

  assert {
    condition = alltrue([
      for pool in values(google_container_node_pool.accelerators) :
      pool.node_config[0].boot_disk_kms_key == var.kms_key
      && pool.node_config[0].service_account == var.node_service_account
      && pool.node_config[0].workload_metadata_config[0].mode == "GKE_METADATA"
      && pool.node_config[0].resource_labels["app"] == "meridian"
    ])
    error_message = "every pool has the key, the account, pods' identities and labels"
  }

  # Queued provisioning: from zero, no reservation, no repair, GKE's own upgrades.
  assert {
    condition = (
      google_container_node_pool.accelerators["t4-dws"].queued_provisioning[0].enabled
      && google_container_node_pool.accelerators["t4-dws"].autoscaling[0].total_min_node_count == 0
      && google_container_node_pool.accelerators["t4-dws"].autoscaling[0].location_policy == "ANY"
      && google_container_node_pool.accelerators["t4-dws"].initial_node_count == 0
      && one(google_container_node_pool.accelerators["t4-dws"].node_config[0].reservation_affinity).consume_reservation_type
      == "NO_RESERVATION"
      && !google_container_node_pool.accelerators["t4-dws"].management[0].auto_repair
      && google_container_node_pool.accelerators["t4-dws"].node_config[0].labels["cloud.google.com/gke-queued"] == "true"
    )
    error_message = "the queued pool is wrong"
  }

  assert {
    condition = alltrue([
      for name, pool in google_container_node_pool.accelerators :
      one(pool.node_config[0].taint).key == (name == "v6e" ? "google.com/tpu" : "nvidia.com/gpu")
    ])
    error_message = "pods without accelerators may take the place of pods with them"
  }

  assert {
    condition = (
      google_container_node_pool.accelerators["l4-flex"].node_config[0].flex_start
      && google_container_node_pool.accelerators["l4-flex"].node_config[0].max_run_duration == "86400s"
      && length(google_container_node_pool.accelerators["l4-flex"].queued_provisioning) == 0
    )
    error_message = "the flex-start pool is wrong"
  }

  assert {
    condition = (
      google_container_node_pool.accelerators["a100-spot"].node_config[0].spot
      && google_container_node_pool.accelerators["a100-spot"].autoscaling[0].total_max_node_count == 8
      && google_container_node_pool.accelerators["a100-spot"].management[0].auto_repair
      && google_container_node_pool.accelerators["a100-spot"].node_config[0].resource_labels["meridian-capacity-class"] == "spot"
    )
    error_message = "the spot pool is wrong"
  }

  assert {
    condition = (
      google_container_node_pool.accelerators["l4-fixed"].node_count == 2
      && length(google_container_node_pool.accelerators["l4-fixed"].autoscaling) == 0
      && google_container_node_pool.accelerators["l4-fixed"].upgrade_settings[0].strategy == "BLUE_GREEN"
    )
    error_message = "the pool of fixed size is wrong"
  }

  assert {
    condition = (
      one(google_container_node_pool.accelerators["h100"].node_config[0].reservation_affinity).consume_reservation_type
      == "SPECIFIC_RESERVATION"
      && one(google_container_node_pool.accelerators["h100"].node_config[0].reservation_affinity[0].values)
      == "projects/owner-1/reservations/calendar-1"
      && google_container_node_pool.accelerators["h100"].node_config[0].guest_accelerator[0].count == 8
    )
    error_message = "the reservation pool is wrong"
  }

  assert {
    condition = (
      google_container_node_pool.accelerators["v6e"].placement_policy[0].tpu_topology == "4x4"
      && google_container_node_pool.accelerators["v6e"].autoscaling[0].total_max_node_count == 4
      && length(google_container_node_pool.accelerators["v6e"].node_config[0].guest_accelerator) == 0
      && google_container_node_pool.accelerators["v6e"].node_config[0].taint[0].key == "google.com/tpu"
    )
    error_message = "the TPU pool is wrong"
  }
}

run "a_broken_rule_stops_the_plan" {
  command = plan

  variables {
    mode  = "standard"
    pools = { "l4" = { accelerator = "nvidia-l4", spot = true, flex_start = true } }
  }

  expect_failures = [google_container_cluster.this]
}

run "pools_in_autopilot_stop_the_plan" {
  command = plan

  variables {
    pools = { "l4" = { accelerator = "nvidia-l4" } }
  }

  expect_failures = [google_container_cluster.this]
}
