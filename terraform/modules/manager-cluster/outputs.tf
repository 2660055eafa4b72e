output "id" {
  description = "The cluster's resource name."
  value       = google_container_cluster.this.id
}

output "name" {
  description = "The cluster's name."
  value       = google_container_cluster.this.name
}

output "membership" {
  description = "The cluster's membership in the fleet."
  value       = google_container_cluster.this.fleet[0].membership
}
