# What Google would answer, as far as tests look at it. No request leaves the machine.

mock_data "google_project" {
  defaults = { number = "123456789012" }
}

mock_resource "google_service_account" {
  defaults = {
    email  = "meridian-nodes@example-project-1.iam.gserviceaccount.com"
    name   = "projects/example-project-1/serviceAccounts/meridian-nodes@example-project-1.iam.gserviceaccount.com"
    member = "serviceAccount:meridian-nodes@example-project-1.iam.gserviceaccount.com"
  }
}

mock_resource "google_compute_address" {
  defaults = { address = "10.255.0.10" }
}

mock_resource "google_sql_database_instance" {
  defaults = { dns_name = "0123456789ab.europe-west4.sql.goog." }
}
