output "connection_name" {
  description = "Name for the Cloud SQL Auth Proxy: PROJECT:REGION:INSTANCE."
  value       = google_sql_database_instance.this.connection_name
}

output "host" {
  description = "The database's private address."
  value       = google_compute_address.this.address
}

output "database" {
  description = "Name of the database."
  value       = google_sql_database.journal.name
}

output "user" {
  description = "The database user of the manager."
  value       = google_sql_user.manager.name
}
