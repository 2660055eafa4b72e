variable "project_id" {
  description = "Project of the deployment."
  type        = string
}

variable "project_number" {
  description = "The project's number. Null: Google is asked. With the number, a plan needs no access to the project."
  type        = string
  default     = null
}

variable "location_manager" {
  description = "Region of the manager. Everything that is submitted is stored here."
  type        = string
  default     = "europe-west4"
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
}

variable "regions_workers" {
  description = "Regions with a worker cluster, all with default settings. Ignored where `regions` has entries."
  type        = list(string)
  default     = ["europe-west4"]

  # Each cluster needs a Helm provider, and Terraform can't make providers in a loop.
  validation {
    condition = length(setsubtract(var.regions_workers, local.regions_with_provider)) == 0
    error_message = join("\n", [
      for region in setsubtract(var.regions_workers, local.regions_with_provider) :
      "Region ${region} has no Helm provider yet; add it to REGIONS in ../generate-agents and run that script."
    ])
  }
}

variable "regions" {
  description = "Regions with a worker cluster, each with its settings. The fields are described in terraform/README.md."
  # Entries have different fields; module `fleet` refuses those that it doesn't know.
  type    = any
  default = {}

  # Each cluster needs a Helm provider, and Terraform can't make providers in a loop.
  validation {
    condition = alltrue([
      for region in try(keys(var.regions), []) : contains(local.regions_with_provider, region)
    ])
    error_message = join("\n", [
      for region in keys(var.regions) :
      "Region ${region} has no Helm provider yet; add it to REGIONS in ../generate-agents and run that script."
      if !contains(local.regions_with_provider, region)
    ])
  }
}

variable "meridian_version" {
  description = "Version of Meridian: the tag of its images. Another value is an upgrade."
  type        = string
}

variable "charts_path" {
  description = "Folder with the Helm charts meridian-manager and meridian-agent."
  type        = string
  default     = "../../../manifests/helm"
}

variable "image_repository" {
  description = "Repository of the images, which nodes must be able to read. Null: the repository that the project creates."
  type        = string
  default     = null
}

variable "manager_values" {
  description = "More values for the manager's chart, laid over those that this configuration makes."
  type        = any
  default     = {}
}

variable "release_channel" {
  description = "GKE's release channel: RAPID, REGULAR, STABLE or EXTENDED."
  type        = string
  default     = "REGULAR"
}

variable "deletion_protection" {
  description = "Refuse to delete clusters and the database."
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

variable "runbook_url" {
  description = "Address of your copy of docs/runbooks, to which alerts link. Null: alerts link to no page."
  type        = string
  default     = null
}

variable "labels" {
  description = "Labels for cost, in addition to `app`, `environment` and `managed-by`."
  type        = map(string)
  default     = {}
}
