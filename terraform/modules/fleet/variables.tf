variable "project_id" {
  description = "Project of the deployment."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "`${var.project_id}` is no project id; write the id (not the number, not the name), such as my-project-1234."
  }
}

variable "project_number" {
  description = "The project's number. Null: Google is asked. With the number, a plan needs no access to the project."
  type        = string
  default     = null
}

variable "environment" {
  description = "Name of the environment, for labels."
  type        = string
}

variable "location_manager" {
  description = "Region of the manager. Everything that is submitted is stored here."
  type        = string
  default     = "europe-west4"

  validation {
    condition     = contains(keys(local.block_of), var.location_manager)
    error_message = "`${var.location_manager}` is no region that is known here; write a region, such as europe-west4."
  }
}

variable "cluster_manager_name_prefix" {
  description = "The manager's cluster is named PREFIX-REGION."
  type        = string
  default     = "manager"
}

variable "cluster_worker_names_prefix" {
  description = "Worker clusters are named PREFIX-REGION."
  type        = string
  default     = "worker"

  validation {
    condition     = var.cluster_worker_names_prefix != var.cluster_manager_name_prefix
    error_message = "Worker clusters and the manager's have the same prefix; write another cluster_worker_names_prefix."
  }
}

variable "regions_workers" {
  description = "Regions with a worker cluster, all with default settings. Ignored where `regions` has entries."
  type        = list(string)
  default     = ["europe-west4", "asia-southeast1", "us-east4"]

  validation {
    condition     = length(distinct(var.regions_workers)) == length(var.regions_workers)
    error_message = "A region is in regions_workers twice; write it once."
  }
}

variable "regions" {
  description = "Regions with a worker cluster, each with its settings. The fields are described in terraform/README.md."
  # Entries have different fields. A type would silently drop a misspelt field; the validations below refuse it.
  type    = any
  default = {}

  validation {
    condition     = can({ for region, settings in var.regions : region => keys(settings) })
    error_message = "Write regions as { REGION = { settings } }, with {} for a region that has default settings."
  }

  validation {
    condition = alltrue([
      for region, settings in try(var.regions, {}) : try(length(setsubtract(keys(settings), local.region_fields)) == 0, true)
    ])
    error_message = join("\n", [
      for region, settings in var.regions : format(
        "Region %s: there is no field `%s`; write one of %s.",
        region, join("`, `", setsubtract(try(keys(settings), []), local.region_fields)), join(", ", local.region_fields),
      ) if length(setsubtract(try(keys(settings), []), local.region_fields)) > 0
    ])
  }

  # A region outside of the list has no block of addresses and no jurisdiction of its own.
  validation {
    condition = alltrue([
      for region, settings in try(var.regions, {}) :
      contains(keys(local.block_of), region) || (can(settings.block) && can(settings.jurisdiction))
    ])
    error_message = join("\n", [
      for region, settings in var.regions : format(
        "`%s` is no region that is known here; correct it, or write jurisdiction and block (%d to 62) in its entry.",
        region, length(local.known_regions),
      ) if !contains(keys(local.block_of), region)
    ])
  }

  # The agent refuses a pool without labels when it starts, long after the apply.
  validation {
    condition = alltrue(flatten([
      for region, settings in try(var.regions, {}) : [
        for pool in try(settings.provisionable, []) : alltrue([
          for field in local.provisionable_fields : try(length(pool[field]) > 0, tonumber(pool[field]) > 0, false)
        ])
      ]
    ]))
    error_message = join("\n", flatten([
      for region, settings in var.regions : [
        for pool in try(settings.provisionable, []) : [
          for field in local.provisionable_fields : join(" ", [
            "Region ${region}: pool `${try(pool.name, "?")}` of provisionable has no ${field}; write it, such as",
            "{ name = \"t4\", capacityClass = \"flex-start\", maxNodes = 4, perNode = { \"nvidia.com/gpu\" = \"1\" },",
            "labels = { \"cloud.google.com/gke-accelerator\" = \"nvidia-tesla-t4\" } }.",
          ]) if !try(length(pool[field]) > 0, tonumber(pool[field]) > 0, false)
        ]
      ]
    ]))
  }

  validation {
    condition = length(distinct([
      for region, settings in try(var.regions, {}) : try(settings.cluster, "${var.cluster_worker_names_prefix}-${region}")
    ])) == length(try(var.regions, {}))
    error_message = "Two regions have the same cluster name; write another `cluster` in one of them."
  }
}

variable "image_repository" {
  description = "Repository of the images, which nodes must be able to read. Null: the repository that the project creates."
  type        = string
  default     = null
}

variable "network_name" {
  description = "Name of the network."
  type        = string
  default     = "dws-network"
}

variable "network_cidr" {
  description = "Range of the network. Every cluster gets one of its 64 blocks."
  type        = string
  default     = "10.0.0.0/8"
}

variable "manager_domain" {
  description = "Private DNS domain of the manager, inside the network."
  type        = string
  default     = "meridian.internal"
}

variable "authorized_networks" {
  description = "Ranges that may reach the private control planes, by a name for each. The Connect gateway needs none."
  type        = map(string)
  default     = {}
}

variable "release_channel" {
  description = "GKE's release channel: RAPID, REGULAR, STABLE or EXTENDED."
  type        = string
  default     = "REGULAR"

  validation {
    condition     = contains(["RAPID", "REGULAR", "STABLE", "EXTENDED"], var.release_channel)
    error_message = "`${var.release_channel}` is no release channel; write RAPID, REGULAR, STABLE or EXTENDED."
  }
}

variable "deletion_protection" {
  description = "Refuse to delete clusters and the database."
  type        = bool
  default     = true
}

variable "kms_keys" {
  description = "Cloud KMS keys (CMEK) by region, for all regions in use. Empty: Google's own keys."
  type        = map(string)
  default     = {}
}

variable "resource_locations" {
  description = "What the organisation policy gcp.resourceLocations allows, such as in:eu-locations. Empty: no policy."
  type        = list(string)
  default     = []
}

variable "residency_required" {
  description = "Refuse workloads that no residency policy matches (`--residency=required`)."
  type        = bool
  default     = false
}

variable "budget" {
  description = "Monthly budget: `billing_account`, `amount` in whole units, and optionally `currency` and `thresholds`."
  type = object({
    billing_account = string
    amount          = number
    currency        = optional(string)
    thresholds      = optional(list(number), [0.5, 0.8, 1.0])
  })
  default = null
}

variable "quotas" {
  description = "Quota preferences by a name of your choice: `quota_id`, `value`, and optionally `dimensions` and `service`."
  type = map(object({
    quota_id   = string
    value      = number
    dimensions = optional(map(string), {})
    service    = optional(string, "compute.googleapis.com")
  }))
  default = {}
}

variable "quota_contact_email" {
  description = "Address at which Google asks about quota preferences. It needs permission to change quotas."
  type        = string
  default     = null
}

variable "notification_emails" {
  description = "Addresses that get alerts and budget mails."
  type        = set(string)
  default     = []
}

variable "postgres" {
  description = "A Cloud SQL database (`enabled`, `tier`). This version of the manager can't use it yet."
  type = object({
    enabled = optional(bool, true)
    tier    = optional(string, "db-custom-2-8192")
  })
  default = { enabled = false }
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

variable "alert_rule_files" {
  description = "Files with Prometheus alert rules. Null: those of manifests/observability."
  type        = list(string)
  default     = null
}

variable "runbook_url" {
  description = "Address of your copy of docs/runbooks, to which alerts link. Null: alerts link to no page."
  type        = string
  default     = null
}

variable "dashboards_path" {
  description = "Folder with dashboards. Null: none."
  type        = string
  default     = null
}

variable "labels" {
  description = "Labels for cost, in addition to `app`, `environment` and `managed-by`."
  type        = map(string)
  default     = {}

  validation {
    condition = alltrue([
      for key, value in var.labels :
      can(regex("^[a-z][a-z0-9_-]{0,62}$", key)) && can(regex("^[a-z0-9_-]{0,63}$", value))
    ])
    error_message = "Labels have lower-case letters, digits, `_` and `-` only; write labels = { cost-center = \"research\" }."
  }
}
