variable "project_id" {
  description = "Project of the identities."
  type        = string
}

variable "manager" {
  description = "Name and region of the manager's cluster."
  type        = object({ name = string, location = string })
}

variable "workers" {
  description = "Worker clusters, by region: the GKE name and the name in Meridian."
  type        = map(object({ name = string, cluster = string, jurisdiction = string }))
}

variable "namespace" {
  description = "Kubernetes namespace of the manager and of the agents."
  type        = string
  default     = "meridian-system"
}

variable "repository" {
  description = "Location and name of the image repository that nodes may read."
  type        = object({ location = string, name = string })
}

variable "postgres" {
  description = "Whether the manager keeps its journal in Cloud SQL: it then gets a service account of its own."
  type        = bool
  default     = false
}

variable "operators" {
  description = "Principals that may change things in the clusters, such as group:platform@example.com."
  type        = set(string)
  default     = []
}

variable "viewers" {
  description = "Principals that may look at the clusters and the dashboards."
  type        = set(string)
  default     = []
}
