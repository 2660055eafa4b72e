output "violations" {
  description = "One sentence for every rule that is broken, with what to write. Empty if all pools are possible."
  value       = local.violations
}

output "pools" {
  description = "The pools with all defaults filled in."
  value       = local.pools
}

output "provisionable" {
  description = "`spec.provisionable` of the Meridian Cluster: the pools that ProvisioningRequests make grow, and how far."
  value       = local.provisionable
}
