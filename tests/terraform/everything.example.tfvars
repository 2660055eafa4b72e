# Every option at once, for the step `plan` of `tests/terraform/run`. Not an example to copy.

project_id       = "my-project"
meridian_version = "0.1.0"

regions = {
  "europe-west4" = {
    cluster = "multikueue-dws-worker-eu"
    mode    = "standard"
    pools = {
      "t4-dws"    = { accelerator = "nvidia-tesla-t4", queued_provisioning = true }
      "t4-both"   = { accelerator = "nvidia-tesla-t4", queued_provisioning = true, flex_start = true }
      "l4-flex"   = { accelerator = "nvidia-l4", flex_start = true, max_run_duration_seconds = 604800 }
      "l4-always" = { accelerator = "nvidia-l4", node_count = 1, upgrade_strategy = "BLUE_GREEN" }
      "a100-spot" = { accelerator = "nvidia-tesla-a100", spot = true }
      "v5e"       = { accelerator = "tpu-v5-lite-podslice", tpu_topology = "2x4" }
      "v6e"       = { accelerator = "tpu-v6e-slice", tpu_topology = "4x4", spot = true }
      "h100" = {
        accelerator       = "nvidia-h100-80gb"
        zones             = ["europe-west4-b"]
        reservation       = { name = "calendar-1", project = "owner-project" }
        compact_placement = true
      }
    }
    system_pool = { machine_type = "e2-standard-8", max_nodes = 3 }
    limits      = { "nvidia.com/gpu" = "64" }
  }
  "us-east4" = {
    jurisdiction = "US"
    mode         = "standard"
    pools        = { "h200-flex" = { accelerator = "nvidia-h200-141gb", flex_start = true, compact_placement = true } }
  }
  "asia-southeast1" = {
    provisionable = [{
      name          = "l4"
      capacityClass = "flex-start"
      labels        = { "cloud.google.com/gke-accelerator" = "nvidia-l4" }
      taints        = [{ key = "nvidia.com/gpu", value = "present", effect = "NoSchedule" }]
      perNode       = { "nvidia.com/gpu" = "1", cpu = "7", memory = "24Gi" }
      maxNodes      = 4
    }]
    agent_values = { logFormat = "json", kubernetes = { configMaps = { check = true } } }
  }
}

kms_keys = {
  "europe-west4"    = "projects/my-keys/locations/europe-west4/keyRings/meridian/cryptoKeys/meridian"
  "us-east4"        = "projects/my-keys/locations/us-east4/keyRings/meridian/cryptoKeys/meridian"
  "asia-southeast1" = "projects/my-keys/locations/asia-southeast1/keyRings/meridian/cryptoKeys/meridian"
}

quotas = {
  "t4" = { quota_id = "PREEMPTIBLE-NVIDIA-T4-GPUS-per-project-region", value = 4, dimensions = { region = "us-east4" } }
}

resource_locations  = ["in:eu-locations", "in:us-locations", "asia-southeast1"]
residency_required  = true
budget              = { billing_account = "000000-000000-000000", amount = 2000, currency = "EUR", thresholds = [0.9] }
quota_contact_email = "platform@example.com"
notification_emails = ["platform@example.com", "research@example.com"]
postgres            = { enabled = true, tier = "db-custom-4-16384" }
operators           = ["group:platform@example.com"]
viewers             = ["group:research@example.com"]
authorized_networks = { office = "192.0.2.0/24" }
dashboards_path     = "../../modules/observability/tests/dashboards"
manager_values      = { config = { term = "20m" } }
runbook_url         = "https://wiki.example.com/meridian/runbooks"
labels              = { cost-center = "research" }
