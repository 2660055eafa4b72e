# The manager's cluster is private, regional and protected.

mock_provider "google" {
  source = "../../mocks/google"
}

variables {
  project_id           = "example-project-1"
  name                 = "manager-europe-west4"
  location             = "europe-west4"
  network              = "network"
  subnet               = { id = "subnet", pods_range = "pods", services_range = "services" }
  node_service_account = "nodes@example-project-1.iam.gserviceaccount.com"
}

run "private_and_protected" {
  command = plan

  assert {
    condition = (
      google_container_cluster.this.private_cluster_config[0].enable_private_nodes
      && google_container_cluster.this.private_cluster_config[0].enable_private_endpoint
      && google_container_cluster.this.deletion_protection
      && google_container_cluster.this.enable_autopilot
    )
    error_message = "the cluster is reachable or unprotected"
  }

  assert {
    condition     = length(google_container_cluster.this.master_authorized_networks_config[0].cidr_blocks) == 0
    error_message = "no address range reaches the control plane by default"
  }

  assert {
    condition     = google_container_cluster.this.monitoring_config[0].managed_prometheus[0].enabled
    error_message = "metrics go to Managed Prometheus"
  }
}

run "with_a_key" {
  command = plan

  variables {
    kms_key             = "projects/example-keys-1/locations/europe-west4/keyRings/r/cryptoKeys/k"
    deletion_protection = false
    authorized_networks = { office = "192.0.2.0/24" }
  }

  assert {
    condition = (
      google_container_cluster.this.database_encryption[0].key_name == var.kms_key
      && google_container_cluster.this.cluster_autoscaling[0].auto_provisioning_defaults[0].boot_disk_kms_key == var.kms_key
    )
    error_message = "the key isn't used"
  }

  assert {
    condition     = !google_container_cluster.this.deletion_protection
    error_message = "protection can be switched off"
  }
}
