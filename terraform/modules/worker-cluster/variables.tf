variable "project_id" {
  description = "Project of the cluster."
  type        = string
}

variable "name" {
  description = "Name of the cluster."
  type        = string
}

variable "location" {
  description = "Region of the cluster."
  type        = string
}

variable "mode" {
  description = "`autopilot`: GKE makes nodes for pods. `standard`: nodes come from `pools`."
  type        = string
  default     = "autopilot"
}

variable "pools" {
  description = "Node pools with accelerators, by name. The fields are described in terraform/README.md."
  # Module `accelerators` has the type and the rules. A copy of the type here could drift from it.
  type    = any
  default = {}
}

variable "accelerator_zones" {
  description = "Zones that offer an accelerator, by accelerator. Replaces the built-in table for that accelerator."
  type        = map(list(string))
  default     = {}
}

variable "system_pool" {
  description = "The pool for pods without accelerators (Standard only): machine type, and nodes over all zones."
  type = object({
    machine_type = optional(string, "e2-standard-4")
    min_nodes    = optional(number, 1)
    max_nodes    = optional(number, 6)
  })
  default = {}
}

variable "network" {
  description = "Resource name of the network."
  type        = string
}

variable "subnet" {
  description = "Subnet of the cluster, as module `network` puts it out."
  type        = object({ id = string, pods_range = string, services_range = string })
}

variable "node_service_account" {
  description = "E-mail of the service account of the nodes."
  type        = string
}

variable "authorized_networks" {
  description = "Ranges that may reach the private control plane, by a name for each."
  type        = map(string)
  default     = {}
}

variable "release_channel" {
  description = "GKE's release channel: RAPID, REGULAR, STABLE or EXTENDED."
  type        = string
  default     = "REGULAR"
}

variable "maintenance_window" {
  description = "Start, end and recurrence (RFC 5545) of the time in which GKE may upgrade the cluster, in UTC."
  type        = object({ start = string, end = string, recurrence = string })
  default = {
    start      = "2026-01-03T02:00:00Z"
    end        = "2026-01-03T08:00:00Z"
    recurrence = "FREQ=WEEKLY;BYDAY=SA,SU"
  }
}

variable "deletion_protection" {
  description = "Refuse to delete the cluster."
  type        = bool
  default     = true
}

variable "kms_key" {
  description = "Cloud KMS key for disks and for Secrets in etcd, in the cluster's region. Null: Google's keys."
  type        = string
  default     = null
}

variable "labels" {
  description = "Labels for cost, on every resource that can have them."
  type        = map(string)
  default     = {}
}
