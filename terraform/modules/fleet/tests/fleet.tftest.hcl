# What a deployment as a whole refuses. What it makes is tested in the environments.

mock_provider "google" {
  source = "../../mocks/google"
}

variables {
  project_id  = "example-project-1"
  environment = "test"
}

run "one_region_with_settings" {
  command = plan

  variables {
    regions = {
      "europe-west4" = {
        cluster      = "eu"
        jurisdiction = "EU"
        limits       = { "nvidia.com/gpu" = "4" }
        agent_values = { logFormat = "json" }
      }
    }
  }

  assert {
    condition     = output.agent_values["europe-west4"].logFormat == "json" && output.agent_values["europe-west4"].cluster == "eu"
    error_message = "the agent's values lack what the entry says"
  }

  assert {
    condition     = output.manager_values.clusters[0].spec.limits["nvidia.com/gpu"] == "4"
    error_message = "the limit is lost"
  }

  assert {
    condition     = output.manager_values.clusters[0].spec.provider.kind == "ProvisioningRequest"
    error_message = "Autopilot asks DWS through ProvisioningRequests"
  }

  # The manager's decision and the agent's right go together.
  assert {
    condition = (
      output.manager_values.clusters[0].spec.provisionable[*].name == ["t4"]
      && output.agent_values["europe-west4"].runner == "kubernetes"
      && output.agent_values["europe-west4"].kubernetes.provisioningRequests
    )
    error_message = jsonencode(output.agent_values)
  }
}

run "a_region_without_a_pool_that_grows" {
  command = plan

  variables {
    regions = {
      "europe-west4" = { mode = "standard", pools = { "l4" = { accelerator = "nvidia-l4", spot = true, min_nodes = 1 } } }
      "us-east4"     = { provisionable = [] }
    }
  }

  assert {
    condition = alltrue([
      for cluster in output.manager_values.clusters : !can(cluster.spec.provider) && cluster.spec.provisionable == []
    ])
    error_message = "the agent refuses a provider without pools: ${jsonencode(output.manager_values.clusters)}"
  }

  assert {
    condition     = alltrue([for values in output.agent_values : !values.kubernetes.provisioningRequests])
    error_message = "an agent may ask for nodes that no pool has"
  }
}

run "pools_of_the_user" {
  command = plan

  variables {
    regions = {
      "europe-west4" = {
        mode  = "standard"
        pools = { "t4" = { accelerator = "nvidia-tesla-t4", queued_provisioning = true } }
        provisionable = [{
          name   = "l4", capacityClass = "flex-start", maxNodes = 2, perNode = { "nvidia.com/gpu" = "1" }
          labels = { "cloud.google.com/gke-nodepool" = "l4" }
        }]
      }
      "us-east4" = {
        agent_values = { kubernetes = { configMaps = { check = true } } }
        provisionable = [{
          name   = "l4", capacityClass = "flex-start", maxNodes = 2, perNode = { "nvidia.com/gpu" = "1" }
          labels = { "cloud.google.com/gke-accelerator" = "nvidia-l4" }
        }]
      }
    }
  }

  assert {
    condition = [for cluster in output.manager_values.clusters : cluster.spec.provisionable[*].name] == [
      ["t4", "l4"], ["l4"],
    ]
    error_message = "they are added in a Standard cluster, and are all there is in Autopilot"
  }

  assert {
    condition = output.agent_values["us-east4"].kubernetes == {
      provisioningRequests = true, configMaps = { check = true }
    }
    error_message = jsonencode(output.agent_values["us-east4"])
  }
}

run "a_pool_without_labels" {
  command = plan

  variables {
    regions = {
      "europe-west4" = {
        provisionable = [{ name = "t4", capacityClass = "flex-start", maxNodes = 4, perNode = { "nvidia.com/gpu" = "1" } }]
      }
    }
  }

  expect_failures = [var.regions]
}

run "autopilot_where_no_accelerator_is_known" {
  command = plan

  variables {
    regions = { "us-central1" = {} }
  }

  expect_failures = [check.autopilot_pools]
}

run "a_region_that_the_table_lacks" {
  command = plan

  variables {
    regions = { "atlantis-north1" = { jurisdiction = "AT", block = 50, provisionable = [] } }
  }

  assert {
    condition     = output.clusters["atlantis-north1"].subnet.pods_cidr == "10.200.0.0/15"
    error_message = output.clusters["atlantis-north1"].subnet.pods_cidr
  }
}

run "an_unknown_region" {
  command = plan

  variables {
    regions = { "europe-west44" = {} }
  }

  expect_failures = [var.regions]
}

run "a_misspelt_field" {
  command = plan

  variables {
    regions = { "europe-west4" = { jurisdicton = "EU" } }
  }

  expect_failures = [var.regions]
}

run "two_clusters_of_one_name" {
  command = plan

  variables {
    regions = { "europe-west4" = { cluster = "a" }, "us-east4" = { cluster = "a" } }
  }

  expect_failures = [var.regions]
}

run "no_settings_at_all" {
  command = plan

  variables {
    regions = { "europe-west4" = "default" }
  }

  expect_failures = [var.regions]
}

run "a_region_twice" {
  command = plan

  variables {
    regions_workers = ["us-east4", "us-east4"]
  }

  expect_failures = [var.regions_workers]
}

run "a_number_instead_of_an_id" {
  command = plan

  variables {
    project_id = "123456789012"
  }

  expect_failures = [var.project_id]
}

run "one_prefix_for_both" {
  command = plan

  variables {
    cluster_manager_name_prefix = "worker"
  }

  expect_failures = [var.cluster_worker_names_prefix]
}

run "a_label_of_bad_form" {
  command = plan

  variables {
    labels = { CostCenter = "Research" }
  }

  expect_failures = [var.labels]
}

run "an_unknown_channel" {
  command = plan

  variables {
    release_channel = "FAST"
  }

  expect_failures = [var.release_channel]
}

run "an_unknown_place_for_the_manager" {
  command = plan

  variables {
    location_manager = "mars"
  }

  expect_failures = [var.location_manager]
}
