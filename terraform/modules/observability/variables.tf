variable "project_id" {
  description = "Project that has the metrics."
  type        = string
}

variable "alert_rule_files" {
  description = "Files with Prometheus alert rules; each becomes an alert policy. Null: manifests/observability."
  type        = list(string)
  default     = null
}

variable "runbook_url" {
  description = "Address of your copy of docs/runbooks, to which alerts link. Null: alerts of this tree link to no page."
  type        = string
  default     = null

  validation {
    condition     = var.runbook_url == null || can(regex("^https?://[^ ]+$", var.runbook_url))
    error_message = "Write runbook_url as the address of a folder, such as https://wiki.example.com/meridian/runbooks."
  }
}

variable "dashboards_path" {
  description = "Folder with dashboards, `*.json`: of Cloud Monitoring as they are, of Grafana translated. Null: none."
  type        = string
  default     = null
}

variable "notification_channels" {
  description = "Resource names of the notification channels that alerts go to."
  type        = list(string)
  default     = []
}

variable "labels" {
  description = "Labels for cost, on every resource that can have them."
  type        = map(string)
  default     = {}
}
