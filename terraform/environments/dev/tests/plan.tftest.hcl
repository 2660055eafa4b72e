# Development as a plan: the smallest deployment.

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

run "one_region" {
  command = plan

  assert {
    condition     = toset(keys(output.kubeconfig_commands)) == toset(["manager-europe-west4", "worker-europe-west4"])
    error_message = "development has two clusters"
  }

  assert {
    condition     = module.fleet.manager_values.journal.kind == "redb" && output.quotas == {}
    error_message = "development has no database and asks for no quota"
  }

  assert {
    condition     = module.fleet.dashboards == [] && length(module.fleet.alerts) > 0
    error_message = "development has alerts and no dashboards"
  }
}

run "the_tutorials_variables" {
  command = plan

  variables {
    location_manager            = "us-east4"
    cluster_manager_name_prefix = "man"
    cluster_worker_names_prefix = "w"
    regions_workers             = ["us-east4", "asia-southeast1"]
  }

  assert {
    condition     = toset(keys(output.kubeconfig_commands)) == toset(["man-us-east4", "w-us-east4", "w-asia-southeast1"])
    error_message = "prefixes and regions are taken"
  }
}

run "another_region_leaves_the_first_alone" {
  variables {
    regions = { "europe-west4" = {} }
  }

  assert {
    condition     = output.join_state["europe-west4"].meridian_version == "0.1.0"
    error_message = "the agent has the version"
  }
}

run "a_second_region" {
  command = plan

  variables {
    regions = { "europe-west4" = {}, "us-east4" = {} }
  }

  assert {
    condition = (
      output.clusters["europe-west4"] == run.another_region_leaves_the_first_alone.clusters["europe-west4"]
      && output.join_state["europe-west4"] == run.another_region_leaves_the_first_alone.join_state["europe-west4"]
    )
    error_message = "the first region changed"
  }

  # The entry is enough: the manager's release has the cluster, its pools, and whose token to accept.
  assert {
    condition = (
      [for cluster in module.fleet.manager_values.clusters : [cluster.spec.region, cluster.spec.provisionable[0].name]]
      == [["europe-west4", "t4"], ["us-east4", "t4"]]
      && length(module.fleet.manager_values.joinByIssuer) == 2
    )
    error_message = output.cluster_objects
  }
}
