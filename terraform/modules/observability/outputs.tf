output "alerts" {
  description = "Names of the alert policies."
  value       = keys(google_monitoring_alert_policy.this)
}

output "dashboards" {
  description = "Names of the dashboards."
  value       = keys(google_monitoring_dashboard.this)
}
