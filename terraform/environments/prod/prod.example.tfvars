# Three regions: copy this file to terraform.tfvars and write your own values.

project_id       = "my-project"
meridian_version = "0.1.0"
location_manager = "europe-west4"

# The names are those of the public tutorial's queue files.
regions = {
  "europe-west4" = {
    cluster = "multikueue-dws-worker-eu"
    mode    = "standard"
    pools = {
      "t4-dws" = { accelerator = "nvidia-tesla-t4", queued_provisioning = true, max_nodes = 4 }
      # Only queued pools grow for Meridian. Of others it uses the nodes that are there: at least one here.
      "l4-spot" = { accelerator = "nvidia-l4", spot = true, min_nodes = 1, max_nodes = 8 }
    }
  }
  "us-east4" = {
    cluster = "multikueue-dws-worker-us"
    mode    = "standard"
    pools = {
      "t4-dws" = { accelerator = "nvidia-tesla-t4", queued_provisioning = true, max_nodes = 4 }
    }
  }
  # Autopilot: up to four nodes with a T4, unless `provisionable` says otherwise. The manager never counts on more than `limits`.
  "asia-southeast1" = {
    cluster = "multikueue-dws-worker-asia"
    limits  = { "nvidia.com/gpu" = "4" }
  }
}

# DWS draws on preemptible quota, which a new project hardly has.
quota_contact_email = "platform@example.com"
quotas = {
  "t4-europe-west4" = {
    quota_id   = "PREEMPTIBLE-NVIDIA-T4-GPUS-per-project-region"
    value      = 4
    dimensions = { region = "europe-west4" }
  }
  "t4-us-east4" = {
    quota_id   = "PREEMPTIBLE-NVIDIA-T4-GPUS-per-project-region"
    value      = 4
    dimensions = { region = "us-east4" }
  }
}

budget              = { billing_account = "000000-000000-000000", amount = 2000 }
notification_emails = ["platform@example.com"]
operators           = ["group:platform@example.com"]
labels              = { cost-center = "research" }

# Options: keys, places, a refusal of workloads without a residency policy, the pages that alerts link to.
# kms_keys           = { "europe-west4" = "projects/my-keys/locations/europe-west4/keyRings/meridian/cryptoKeys/meridian" }
# resource_locations = ["in:europe-west4-locations", "in:us-east4-locations", "in:asia-southeast1-locations"]
# residency_required = true
# runbook_url        = "https://wiki.example.com/meridian/runbooks"
