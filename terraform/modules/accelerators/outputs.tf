output "violations" {
  description = "One sentence for every rule that is broken, with what to write. Empty if all pools are possible."
  value       = local.violations
}

output "pools" {
  description = "The pools with all defaults filled in."
  value       = local.pools
}

output "provisionable" {
  description = "`spec.provisionable` of the Meridian Cluster: what each pool can grow to, for the manager's decisions."
  value       = local.provisionable
}
