# Addresses depend on the block alone, so a subnet that comes or goes moves no other.

mock_provider "google" {
  source = "../../mocks/google"
}

variables {
  project_id     = "example-project-1"
  manager_subnet = "manager-europe-west4"
  subnets = {
    "manager-europe-west4" = { region = "europe-west4", block = 63 }
    "worker-europe-west4"  = { region = "europe-west4", block = 19 }
    "worker-us-east4"      = { region = "us-east4", block = 35 }
  }
}

run "blocks" {
  command = plan

  assert {
    condition = {
      for name, subnet in google_compute_subnetwork.this : name => [
        subnet.ip_cidr_range, subnet.secondary_ip_range[0].ip_cidr_range, subnet.secondary_ip_range[1].ip_cidr_range,
      ]
      } == {
      "manager-europe-west4" = ["10.254.0.0/20", "10.252.0.0/15", "10.254.16.0/20"]
      "worker-europe-west4"  = ["10.78.0.0/20", "10.76.0.0/15", "10.78.16.0/20"]
      "worker-us-east4"      = ["10.142.0.0/20", "10.140.0.0/15", "10.142.16.0/20"]
    }
    error_message = jsonencode({ for name, subnet in google_compute_subnetwork.this : name => subnet.ip_cidr_range })
  }

  assert {
    condition     = toset(keys(google_compute_router_nat.this)) == toset(["europe-west4", "us-east4"])
    error_message = "one NAT gateway per region"
  }

  assert {
    condition     = alltrue([for subnet in values(google_compute_subnetwork.this) : subnet.private_ip_google_access])
    error_message = "nodes without public addresses reach Google's APIs"
  }

  assert {
    condition     = google_compute_address.manager.address_type == "INTERNAL"
    error_message = "the manager has no public address"
  }
}

run "a_block_twice" {
  command = plan

  variables {
    subnets = {
      "manager-europe-west4" = { region = "europe-west4", block = 63 }
      "worker-us-east4"      = { region = "us-east4", block = 63 }
    }
  }

  expect_failures = [var.subnets]
}

run "a_range_that_is_too_small" {
  command = plan

  variables {
    cidr = "10.0.0.0/16"
  }

  expect_failures = [var.cidr]
}
