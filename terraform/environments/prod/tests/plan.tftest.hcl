# Production as a plan, and what changes when a region comes, goes, or Meridian gets another version.

mock_provider "google" {
  source = "../../mocks/google"
}

mock_provider "kubernetes" {
  source = "../../mocks/kubernetes"
}

mock_provider "helm" {}

mock_provider "helm" {
  alias = "asia_northeast1"
}

mock_provider "helm" {
  alias = "asia_southeast1"
}

mock_provider "helm" {
  alias = "europe_west1"
}

mock_provider "helm" {
  alias = "europe_west4"
}

mock_provider "helm" {
  alias = "us_central1"
}

mock_provider "helm" {
  alias = "us_east1"
}

mock_provider "helm" {
  alias = "us_east4"
}

mock_provider "helm" {
  alias = "us_east5"
}

mock_provider "helm" {
  alias = "us_west1"
}

mock_provider "helm" {
  alias = "us_west4"
}

variables {
  project_id       = "example-project-1"
  meridian_version = "0.1.0"
}

run "the_tutorials_defaults" {
  command = plan

  assert {
    condition     = module.fleet.regions == toset(["europe-west4", "asia-southeast1", "us-east4"])
    error_message = "the tutorial's three regions are the default"
  }

  assert {
    condition = toset(keys(output.kubeconfig_commands)) == toset([
      "manager-europe-west4", "worker-europe-west4", "worker-asia-southeast1", "worker-us-east4",
    ])
    error_message = "contexts have the tutorial's names"
  }

  assert {
    condition = output.kubeconfig_commands["worker-us-east4"] == join(" ", [
      "gcloud container fleet memberships get-credentials worker-us-east4 --location us-east4 --project example-project-1",
      "&& kubectl config rename-context connectgateway_example-project-1_us-east4_worker-us-east4 worker-us-east4",
    ])
    error_message = output.kubeconfig_commands["worker-us-east4"]
  }

  assert {
    condition = [for document in split("---\n", trimprefix(output.cluster_objects, "---\n")) : [
      yamldecode(document).kind, yamldecode(document).metadata.name, yamldecode(document).spec.provisionable[0].name,
      ]] == [
      ["Cluster", "worker-asia-southeast1", "t4"], ["Cluster", "worker-europe-west4", "t4"], ["Cluster", "worker-us-east4", "t4"],
    ]
    error_message = output.cluster_objects
  }

  # The Secret's name is the chart's, and the user has no right but to read metrics.
  assert {
    condition = (
      strcontains(output.metrics_commands[1], " create secret generic meridian-manager-metrics ")
      && strcontains(output.metrics_commands[0], "\"kind\":\"ClusterRole\",\"name\":\"meridian-metrics\"}")
    )
    error_message = join("\n", output.metrics_commands)
  }

  assert {
    condition     = output.manager_url == "https://manager.meridian.internal:7443"
    error_message = output.manager_url
  }

  assert {
    condition = output.cluster_names_and_regions[*].name == [
      "worker-asia-southeast1", "worker-europe-west4", "worker-us-east4",
    ]
    error_message = "the tutorial's output lists the workers"
  }

  assert {
    condition = local.gateways["us-east4"] == join("", [
      "https://us-east4-connectgateway.googleapis.com/v1/projects/123456789012/locations/us-east4",
      "/gkeMemberships/worker-us-east4",
    ])
    error_message = local.gateways["us-east4"]
  }
}

run "the_tutorials_variables" {
  command = plan

  variables {
    location_manager            = "us-east4"
    cluster_manager_name_prefix = "man"
    cluster_worker_names_prefix = "w"
    regions_workers             = ["us-east4"]
  }

  assert {
    condition     = toset(keys(output.kubeconfig_commands)) == toset(["man-us-east4", "w-us-east4"])
    error_message = "prefixes and regions are taken"
  }
}

run "three_regions" {
  variables {
    regions = {
      "europe-west4" = {
        cluster = "multikueue-dws-worker-eu"
        mode    = "standard"
        pools   = { "t4" = { accelerator = "nvidia-tesla-t4", queued_provisioning = true } }
      }
      "us-east4"        = { cluster = "multikueue-dws-worker-us" }
      "asia-southeast1" = { cluster = "multikueue-dws-worker-asia" }
    }
  }

  assert {
    condition = [for agent in module.fleet.manager_values.joinByIssuer : agent.cluster] == [
      "multikueue-dws-worker-asia", "multikueue-dws-worker-eu", "multikueue-dws-worker-us",
    ]
    error_message = "the manager trusts the three clusters"
  }

  assert {
    condition = output.join_state["us-east4"].trusted_issuer == join("/", [
      "https://container.googleapis.com/v1/projects/example-project-1/locations/us-east4/clusters/worker-us-east4",
    ])
    error_message = output.join_state["us-east4"].trusted_issuer
  }

  assert {
    condition = yamldecode(module.agent_us_east4[0].values[0]).manager == {
      url           = "https://manager.meridian.internal:7443"
      caCertificate = "-----BEGIN CERTIFICATE-----"
    }
    error_message = module.agent_us_east4[0].values[0]
  }

  assert {
    condition = yamldecode(module.agent_us_east4[0].values[1]) == {
      image = { repository = "europe-west4-docker.pkg.dev/example-project-1/meridian/meridian-agent", tag = "0.1.0" }
    }
    error_message = module.agent_us_east4[0].values[1]
  }
}

# An attribute that Google computes is unknown in a plan that replaces the resource, so equal ids mean: not replaced.
run "a_region_comes" {
  command = plan

  variables {
    regions = {
      "europe-west4" = {
        cluster = "multikueue-dws-worker-eu"
        mode    = "standard"
        pools   = { "t4" = { accelerator = "nvidia-tesla-t4", queued_provisioning = true } }
      }
      "us-east4"        = { cluster = "multikueue-dws-worker-us" }
      "asia-southeast1" = { cluster = "multikueue-dws-worker-asia" }
      "us-central1"     = { accelerator_zones = { "nvidia-tesla-t4" = ["us-central1-a"] } }
    }
  }

  assert {
    condition = alltrue([
      for region in ["europe-west4", "us-east4", "asia-southeast1"] :
      output.clusters[region] == run.three_regions.clusters[region]
    ])
    error_message = "another region's cluster, pools, subnet or nodes' account changed"
  }

  assert {
    condition = alltrue([
      for region in ["europe-west4", "us-east4", "asia-southeast1"] :
      output.join_state[region] == run.three_regions.join_state[region]
    ])
    error_message = "another region's agent changed"
  }

  assert {
    condition     = output.manager_cluster == run.three_regions.manager_cluster
    error_message = "the manager's cluster changed"
  }

  assert {
    condition     = length(module.agent_us_central1) == 1 && length(module.fleet.manager_values.joinByIssuer) == 4
    error_message = "the new region has no agent, or the manager doesn't trust it"
  }

  # The values are known while planning, and are those of before.
  assert {
    condition = yamldecode(module.agent_europe_west4[0].values[0]).manager == {
      url           = "https://manager.meridian.internal:7443"
      caCertificate = "-----BEGIN CERTIFICATE-----"
    }
    error_message = "the agent's values changed"
  }
}

run "a_region_goes" {
  command = plan

  variables {
    regions = {
      "europe-west4" = {
        cluster = "multikueue-dws-worker-eu"
        mode    = "standard"
        pools   = { "t4" = { accelerator = "nvidia-tesla-t4", queued_provisioning = true } }
      }
      "asia-southeast1" = { cluster = "multikueue-dws-worker-asia" }
    }
  }

  assert {
    condition = alltrue([
      for region in ["europe-west4", "asia-southeast1"] : (
        output.clusters[region] == run.three_regions.clusters[region]
        && output.join_state[region] == run.three_regions.join_state[region]
      )
    ])
    error_message = "another region changed"
  }

  assert {
    condition     = length(module.agent_us_east4) == 0 && !contains(keys(output.clusters), "us-east4")
    error_message = "the region is still there"
  }

  assert {
    condition = [for agent in module.fleet.manager_values.joinByIssuer : agent.cluster] == [
      "multikueue-dws-worker-asia", "multikueue-dws-worker-eu",
    ]
    error_message = "the manager still trusts the cluster that is gone"
  }

  # The values are known while planning, and are those of before.
  assert {
    condition = yamldecode(module.agent_europe_west4[0].values[0]).manager == {
      url           = "https://manager.meridian.internal:7443"
      caCertificate = "-----BEGIN CERTIFICATE-----"
    }
    error_message = "the agent's values changed"
  }
}

run "an_upgrade_is_one_variable" {
  command = plan

  variables {
    meridian_version = "0.2.0"
    regions = {
      "europe-west4" = {
        cluster = "multikueue-dws-worker-eu"
        mode    = "standard"
        pools   = { "t4" = { accelerator = "nvidia-tesla-t4", queued_provisioning = true } }
      }
      "us-east4"        = { cluster = "multikueue-dws-worker-us" }
      "asia-southeast1" = { cluster = "multikueue-dws-worker-asia" }
    }
  }

  assert {
    condition     = output.clusters == run.three_regions.clusters
    error_message = "a cluster changed"
  }

  assert {
    condition     = alltrue([for state in values(output.join_state) : state.meridian_version == "0.2.0"])
    error_message = "an agent keeps its version"
  }

  assert {
    condition     = yamldecode(module.manager.values[1]).image.tag == "0.2.0"
    error_message = "the manager keeps its version"
  }

  # The values are known while planning, and are those of before.
  assert {
    condition = yamldecode(module.agent_europe_west4[0].values[0]).manager == {
      url           = "https://manager.meridian.internal:7443"
      caCertificate = "-----BEGIN CERTIFICATE-----"
    }
    error_message = "the agent's values changed"
  }
}

run "a_region_without_a_provider" {
  command = plan

  variables {
    regions = { "me-west1" = {} }
  }

  expect_failures = [var.regions]
}

run "a_worker_region_without_a_provider" {
  command = plan

  variables {
    regions_workers = ["me-west1"]
  }

  expect_failures = [var.regions_workers]
}

run "everything_switched_on" {
  command = plan

  variables {
    regions = {
      "europe-west4" = {
        mode = "standard"
        pools = {
          "t4-dws"    = { accelerator = "nvidia-tesla-t4", queued_provisioning = true }
          "l4-flex"   = { accelerator = "nvidia-l4", flex_start = true, max_run_duration_seconds = 86400 }
          "a100-spot" = { accelerator = "nvidia-tesla-a100", spot = true }
          "v6e"       = { accelerator = "tpu-v6e-slice", tpu_topology = "4x4" }
          "h100" = {
            accelerator = "nvidia-h100-80gb", zones = ["europe-west4-b"], reservation = { name = "calendar-1" }
          }
        }
        limits = { "nvidia.com/gpu" = "64" }
      }
    }
    kms_keys = {
      "europe-west4" = "projects/example-keys-1/locations/europe-west4/keyRings/meridian/cryptoKeys/meridian"
    }
    resource_locations  = ["in:eu-locations"]
    residency_required  = true
    budget              = { billing_account = "000000-000000-000000", amount = 10000 }
    quota_contact_email = "platform@example.com"
    notification_emails = ["platform@example.com"]
    postgres            = { enabled = true }
    operators           = ["group:platform@example.com"]
    viewers             = ["group:research@example.com"]
    labels              = { cost-center = "research" }
    quotas = {
      "t4-europe-west4" = {
        quota_id = "PREEMPTIBLE-NVIDIA-T4-GPUS-per-project-region", value = 16, dimensions = { region = "europe-west4" }
      }
    }
  }

  assert {
    condition     = module.fleet.manager_values.residency == "required"
    error_message = "the manager's values lack residency"
  }

  # The chart refuses a journal in PostgreSQL, so the database must not break the release.
  assert {
    condition     = module.fleet.manager_values.journal == { kind = "redb" }
    error_message = jsonencode(module.fleet.manager_values.journal)
  }

  assert {
    condition = [for pool in module.fleet.manager_values.clusters[0].spec.provisionable : "${pool.name} ${pool.capacityClass}"] == [
      "t4-dws flex-start",
    ]
    error_message = jsonencode(module.fleet.manager_values.clusters)
  }

  assert {
    condition     = module.fleet.manager_values.clusters[0].spec.provider.className == "queued-provisioning.gke.io"
    error_message = "queued pools need the provider ProvisioningRequest"
  }

  assert {
    condition     = output.quotas["t4-europe-west4"].asked == "16"
    error_message = "the quota preference is missing"
  }
}
