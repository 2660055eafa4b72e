# A plan that must fail. `tests/terraform/run` reads the sentences that the user gets.

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

run "sentences_of_three_regions" {
  command = plan

  variables {
    regions = {
      "europe-west4" = {
        mode = "standard"
        pools = {
          "l4-both"   = { accelerator = "nvidia-l4", flex_start = true, spot = true }
          "t4-queued" = { accelerator = "nvidia-tesla-t4", queued_provisioning = true, min_nodes = 1 }
          "t4-typo"   = { accelerator = "nvidia-tesla-t4", qeued_provisioning = true }
        }
      }
      "us-east4" = {
        mode  = "standard"
        pools = { "a100" = { accelerator = "nvidia-tesla-a100" } }
      }
      "asia-southeast1" = {
        pools = { "l4" = { accelerator = "nvidia-l4", max_run_duration_seconds = 700000 } }
      }
    }
  }
}
