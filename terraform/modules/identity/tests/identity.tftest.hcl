# Identities without keys, and no more rights than needed.

mock_provider "google" {
  source = "../../mocks/google"
}

variables {
  project_id = "example-project-1"
  manager    = { name = "manager-europe-west4", location = "europe-west4" }
  repository = { location = "europe-west4", name = "meridian" }
  workers = {
    "us-east4"        = { name = "worker-us-east4", cluster = "us", jurisdiction = "US" }
    "asia-southeast1" = { name = "worker-with-a-long-name-asia-southeast1", cluster = "asia", jurisdiction = "SG" }
  }
}

run "agents_join_by_their_issuer" {
  command = plan

  assert {
    condition = output.agents["us-east4"] == {
      cluster      = "us"
      region       = "us-east4"
      jurisdiction = "US"
      issuer       = "https://container.googleapis.com/v1/projects/example-project-1/locations/us-east4/clusters/worker-us-east4"
      subject      = "system:serviceaccount:meridian-system:meridian-agent"
      audience     = "meridian"
    }
    error_message = jsonencode(output.agents["us-east4"])
  }

  assert {
    condition     = alltrue([for account in values(google_service_account.nodes) : length(account.account_id) <= 30])
    error_message = "an account's id has 30 characters at most"
  }

  assert {
    condition = alltrue([
      for grant in values(google_project_iam_member.nodes) : grant.role == "roles/container.defaultNodeServiceAccount"
    ])
    error_message = "nodes have one role"
  }

  assert {
    condition     = length(google_service_account.manager) == 0 && length(google_project_iam_member.people) == 0
    error_message = "without `operators` and `viewers`, no person gets a role"
  }
}

run "with_a_database_and_people" {
  command = plan

  variables {
    postgres  = true
    operators = ["group:platform@example.com"]
    viewers   = ["group:research@example.com"]
  }

  assert {
    condition = (
      google_service_account_iam_member.manager[0].member
      == "serviceAccount:example-project-1.svc.id.goog[meridian-system/meridian-manager]"
    )
    error_message = "only the manager's Kubernetes account may act as the manager"
  }

  assert {
    condition     = toset(keys(google_project_iam_member.manager)) == toset(["roles/cloudsql.client", "roles/cloudsql.instanceUser"])
    error_message = "the manager may log in to the database, nothing else"
  }

  assert {
    condition = alltrue([
      for grant in values(google_project_iam_member.people) :
      !contains(["roles/owner", "roles/editor", "roles/container.admin"], grant.role)
    ])
    error_message = "a person got a role for everything"
  }
}
