output "status" {
  description = "What Helm says of the release: `deployed` when it is installed and ready."
  value       = helm_release.this.status
}

output "values" {
  description = "The values of the chart, as YAML documents in the order in which they are laid over each other."
  value       = helm_release.this.values
}

output "meridian_version" {
  description = "The version of Meridian that is released."
  value       = var.meridian_version
}
