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

output "network" {
  description = "The cluster's network."
  value       = google_container_cluster.this.network
}

output "subnet" {
  description = "The cluster's subnet."
  value       = google_container_cluster.this.subnetwork
}

output "pools" {
  description = "Resource names of the pools with accelerators, by name."
  value       = { for name, pool in google_container_node_pool.accelerators : name => pool.id }
}

output "provisionable" {
  description = "`spec.provisionable` of the Meridian Cluster."
  value       = module.accelerators.provisionable
}
