# The database is private, survives a zone, and has no password.

mock_provider "google" {
  source = "../../mocks/google"
}

variables {
  project_id = "example-project-1"
  location   = "europe-west4"
  network    = "network"
  subnet     = "subnet"
  user       = "meridian-manager@example-project-1.iam.gserviceaccount.com"
}

run "private_and_regional" {
  command = plan

  assert {
    condition = (
      google_sql_database_instance.this.settings[0].availability_type == "REGIONAL"
      && !google_sql_database_instance.this.settings[0].ip_configuration[0].ipv4_enabled
      && google_sql_database_instance.this.settings[0].backup_configuration[0].location == "europe-west4"
      && google_sql_database_instance.this.deletion_protection
      && google_sql_database_instance.this.settings[0].deletion_protection_enabled
    )
    error_message = "the database is public, in one zone, unprotected, or backed up elsewhere"
  }

  assert {
    condition = (
      google_sql_user.manager.type == "CLOUD_IAM_SERVICE_ACCOUNT"
      && google_sql_user.manager.name == "meridian-manager@example-project-1.iam"
      && google_sql_user.manager.password == null
    )
    error_message = "the manager logs in with its identity"
  }
}
