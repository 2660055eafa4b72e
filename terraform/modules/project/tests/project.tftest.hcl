# Limits on place and money, quotas and keys: what is made, and what is refused.

mock_provider "google" {
  source = "../../mocks/google"
}

variables {
  project_id = "example-project-1"
  location   = "europe-west4"
  regions    = ["europe-west4", "us-east4"]
}

run "nothing_that_was_not_asked_for" {
  command = plan

  assert {
    condition = (
      length(google_org_policy_policy.resource_locations) == 0
      && length(google_billing_budget.this) == 0
      && length(google_cloud_quotas_quota_preference.this) == 0
      && length(google_kms_crypto_key_iam_member.agents) == 0
      && length(setintersection(keys(google_project_service.this), [
        "billingbudgets.googleapis.com", "cloudkms.googleapis.com", "cloudquotas.googleapis.com", "orgpolicy.googleapis.com",
        "sqladmin.googleapis.com",
      ])) == 0
    )
    error_message = "an option is on by default"
  }

  assert {
    condition     = output.image_repository == "europe-west4-docker.pkg.dev/example-project-1/meridian"
    error_message = output.image_repository
  }
}

run "everything" {
  command = plan

  variables {
    resource_locations  = ["in:eu-locations", "in:us-east4-locations"]
    budget              = { billing_account = "000000-000000-000000", amount = 500, currency = "EUR" }
    quota_contact_email = "platform@example.com"
    notification_emails = ["platform@example.com"]
    quotas              = { "t4" = { quota_id = "NVIDIA-T4-GPUS-per-project-region", value = 8, dimensions = { region = "us-east4" } } }
    postgres            = true
    kms_keys = {
      "europe-west4" = "projects/example-keys-1/locations/europe-west4/keyRings/r/cryptoKeys/k"
      "us-east4"     = "projects/example-keys-1/locations/us-east4/keyRings/r/cryptoKeys/k"
    }
  }

  assert {
    condition = toset(google_org_policy_policy.resource_locations[0].spec[0].rules[0].values[0].allowed_values) == toset([
      "in:eu-locations", "in:us-east4-locations",
    ])
    error_message = "the policy allows something else"
  }

  assert {
    condition = (
      google_billing_budget.this[0].amount[0].specified_amount[0].units == "500"
      && one(google_billing_budget.this[0].budget_filter[0].projects) == "projects/123456789012"
      && length(google_billing_budget.this[0].threshold_rules) == 4
    )
    error_message = "the budget is wrong"
  }

  assert {
    condition     = google_cloud_quotas_quota_preference.this["t4"].quota_config[0].preferred_value == "8"
    error_message = "the quota preference is wrong"
  }

  assert {
    condition     = contains(keys(google_project_service.this), "cloudkms.googleapis.com")
    error_message = "without the API of Cloud KMS, the keys can't be granted"
  }

  assert {
    condition = google_kms_crypto_key_iam_member.agents["us-east4/sql"].member == join("", [
      "serviceAccount:service-123456789012@gcp-sa-cloud-sql.iam.gserviceaccount.com",
    ]) && length(google_kms_crypto_key_iam_member.agents) == 8
    error_message = "Google's service agents can't use the keys"
  }
}

run "a_region_outside_the_policy" {
  command = plan

  variables {
    resource_locations = ["in:eu-locations"]
  }

  expect_failures = [var.resource_locations]
}

# London is in Europe, not in the EU.
run "london_is_outside_the_eu" {
  command = plan

  variables {
    regions            = ["europe-west2"]
    resource_locations = ["in:eu-locations"]
  }

  expect_failures = [var.resource_locations]
}

run "a_location_of_bad_form" {
  command = plan

  variables {
    regions            = ["europe-west4"]
    resource_locations = ["in:eu-locations", "Europe"]
  }

  expect_failures = [var.resource_locations]
}

run "a_budget_with_a_fraction" {
  command = plan

  variables {
    budget = { billing_account = "000000-000000-000000", amount = 10.5 }
  }

  expect_failures = [var.budget]
}

run "quotas_without_a_contact" {
  command = plan

  variables {
    quotas = { "t4" = { quota_id = "NVIDIA-T4-GPUS-per-project-region", value = 8 } }
  }

  expect_failures = [var.quota_contact_email]
}

run "a_key_of_another_region" {
  command = plan

  variables {
    kms_keys = {
      "europe-west4" = "projects/example-keys-1/locations/us-east4/keyRings/r/cryptoKeys/k"
      "us-east4"     = "projects/example-keys-1/locations/us-east4/keyRings/r/cryptoKeys/k"
    }
  }

  expect_failures = [var.kms_keys]
}

run "a_region_without_a_key" {
  command = plan

  variables {
    kms_keys = { "europe-west4" = "projects/example-keys-1/locations/europe-west4/keyRings/r/cryptoKeys/k" }
  }

  expect_failures = [var.kms_keys]
}
