variable "region" {
  description = "Region of the cluster that gets the pools."
  type        = string
}

variable "mode" {
  description = "`standard`, or `autopilot`, where GKE makes the nodes itself and pools are not possible."
  type        = string
  default     = "standard"
}

variable "accelerator_zones" {
  description = "Zones that offer an accelerator, by accelerator. Replaces the built-in table for that accelerator."
  type        = map(list(string))
  default     = {}
}

variable "pools" {
  description = "Node pools with accelerators, by name. The fields are described in terraform/README.md."
  type = map(object({
    accelerator              = string
    machine_type             = optional(string)
    accelerator_count        = optional(number)
    zones                    = optional(list(string), [])
    queued_provisioning      = optional(bool, false)
    flex_start               = optional(bool, false)
    spot                     = optional(bool, false)
    reservation              = optional(object({ name = string, project = optional(string) }))
    min_nodes                = optional(number, 0)
    max_nodes                = optional(number)
    node_count               = optional(number)
    max_run_duration_seconds = optional(number)
    auto_repair              = optional(bool)
    upgrade_strategy         = optional(string)
    compact_placement        = optional(bool, false)
    tpu_topology             = optional(string)
    disk_size_gb             = optional(number, 100)
  }))
  default = {}
}

variable "written_fields" {
  description = "By pool, the fields as the user wrote them. Terraform silently drops fields that a type lacks."
  type        = map(list(string))
  default     = {}
}
