variable "project_id" {
  description = "Project of the deployment."
  type        = string
}

variable "project_number" {
  description = "The project's number. Null: Google is asked. With the number, a plan needs no access to the project."
  type        = string
  default     = null
}

variable "location" {
  description = "Region of the manager: images are stored here."
  type        = string
}

variable "regions" {
  description = "Every region in use. A resource-location policy must allow all of them."
  type        = set(string)
}

variable "resource_locations" {
  description = "What the organisation policy gcp.resourceLocations allows, such as in:eu-locations. Empty: no policy."
  type        = list(string)
  default     = []

  validation {
    condition = alltrue([
      for value in var.resource_locations : startswith(value, "in:") || can(regex("^[a-z]+-[a-z]+[0-9]+$", value))
    ])
    error_message = "Write each resource location as a value group, such as in:eu-locations, or as a region."
  }

  # The policy checks new resources only. Terraform would learn of a refused region in the middle of an apply.
  validation {
    condition = length(var.resource_locations) == 0 || alltrue([
      for groups in values(local.location_groups) : length(setintersection(groups, var.resource_locations)) > 0
    ])
    error_message = join("\n", [
      for region, groups in local.location_groups :
      "Region ${region} is outside resource_locations; add in:${region}-locations, or remove the region."
      if length(setintersection(groups, var.resource_locations)) == 0
    ])
  }
}

variable "budget" {
  description = "Monthly budget of the project: billing account, whole units of its currency, and shares at which to mail."
  type = object({
    billing_account = string
    amount          = number
    currency        = optional(string)
    thresholds      = optional(list(number), [0.5, 0.8, 1.0])
  })
  default = null

  validation {
    condition     = var.budget == null || (try(var.budget.amount, 0) >= 1 && try(var.budget.amount % 1, 1) == 0)
    error_message = "Write budget.amount in whole units of the currency, at least 1."
  }
}

variable "quotas" {
  description = "Quota preferences by a name of your choice: quota id, value, and dimensions such as the region."
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

  validation {
    condition     = length(var.quotas) == 0 || var.quota_contact_email != null
    error_message = "Google asks for a contact before it raises a quota; write quota_contact_email, or remove quotas."
  }
}

variable "notification_emails" {
  description = "Addresses that get alerts and budget mails."
  type        = set(string)
  default     = []
}

variable "kms_keys" {
  description = "Cloud KMS keys by region. Google's service agents get the right to use them. Empty: Google's own keys."
  type        = map(string)
  default     = {}

  validation {
    condition = alltrue([
      for region, key in var.kms_keys : can(regex("^projects/[^/]+/locations/${region}/keyRings/[^/]+/cryptoKeys/[^/]+$", key))
    ])
    error_message = "Each key must be in its region; write projects/P/locations/REGION/keyRings/R/cryptoKeys/K for that same REGION."
  }

  validation {
    condition     = length(var.kms_keys) == 0 || length(setsubtract(var.regions, keys(var.kms_keys))) == 0
    error_message = "No key for ${join(", ", setsubtract(var.regions, keys(var.kms_keys)))}; write one in kms_keys, or leave kms_keys out."
  }
}

variable "postgres" {
  description = "Whether Cloud SQL is used: its API is enabled, and its service agent may use the keys."
  type        = bool
  default     = false
}

variable "labels" {
  description = "Labels for cost, on every resource that can have them."
  type        = map(string)
  default     = {}
}
