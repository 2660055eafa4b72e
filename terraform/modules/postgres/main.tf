# A database in Cloud SQL for the manager's journal, so that it survives the loss of a zone. Reached through Private Service
# Connect only, with IAM logins only. This version of the manager can't use it yet, so no release is given its address.

resource "google_sql_database_instance" "this" {
  project             = var.project_id
  name                = var.name
  region              = var.location
  database_version    = var.database_version
  encryption_key_name = var.kms_key
  deletion_protection = var.deletion_protection

  settings {
    tier                        = var.tier
    edition                     = "ENTERPRISE"
    availability_type           = "REGIONAL"
    disk_autoresize             = true
    deletion_protection_enabled = var.deletion_protection
    retain_backups_on_delete    = true
    user_labels                 = var.labels

    ip_configuration {
      ipv4_enabled = false
      ssl_mode     = "ENCRYPTED_ONLY"

      psc_config {
        psc_enabled               = true
        allowed_consumer_projects = [var.project_id]
      }
    }

    backup_configuration {
      enabled                        = true
      point_in_time_recovery_enabled = true
      # Backups hold every job's spec: they stay where the manager is.
      location = var.location

      backup_retention_settings {
        retained_backups = 14
      }
    }

    database_flags {
      name  = "cloudsql.iam_authentication"
      value = "on"
    }

    maintenance_window {
      day          = 7
      hour         = 3
      update_track = "stable"
    }
  }
}

resource "google_sql_database" "journal" {
  project  = var.project_id
  instance = google_sql_database_instance.this.name
  name     = "meridian"
}

resource "google_sql_user" "manager" {
  project  = var.project_id
  instance = google_sql_database_instance.this.name
  type     = "CLOUD_IAM_SERVICE_ACCOUNT"
  # PostgreSQL limits names to 63 characters, so Cloud SQL leaves the end of the e-mail out.
  name = trimsuffix(var.user, ".gserviceaccount.com")
}

resource "google_compute_address" "this" {
  project      = var.project_id
  name         = var.name
  region       = var.location
  subnetwork   = var.subnet
  address_type = "INTERNAL"
  labels       = var.labels
}

# The Auth Proxy looks for the database under the name that Cloud SQL gave it.
resource "google_dns_managed_zone" "this" {
  project     = var.project_id
  name        = var.name
  dns_name    = google_sql_database_instance.this.dns_name
  description = "The database of the Meridian manager."
  visibility  = "private"
  labels      = var.labels

  private_visibility_config {
    networks {
      network_url = var.network
    }
  }
}

resource "google_dns_record_set" "this" {
  project      = var.project_id
  managed_zone = google_dns_managed_zone.this.name
  name         = google_sql_database_instance.this.dns_name
  type         = "A"
  ttl          = 300
  rrdatas      = [google_compute_address.this.address]
}

resource "google_compute_forwarding_rule" "this" {
  project               = var.project_id
  name                  = var.name
  region                = var.location
  network               = var.network
  ip_address            = google_compute_address.this.id
  load_balancing_scheme = ""
  target                = google_sql_database_instance.this.psc_service_attachment_link
  labels                = var.labels
}
