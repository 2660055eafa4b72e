variable "project_id" {
  description = "Project of the database."
  type        = string
}

variable "name" {
  description = "Name of the instance. Google keeps a deleted instance's name for a week."
  type        = string
  default     = "meridian-journal"
}

variable "location" {
  description = "Region of the database and of its backups: the manager's."
  type        = string
}

variable "network" {
  description = "Resource name of the network that reaches the database."
  type        = string
}

variable "subnet" {
  description = "Resource name of the subnet that gets the database's address."
  type        = string
}

variable "tier" {
  description = "Machine type of the database."
  type        = string
  default     = "db-custom-2-8192"
}

variable "database_version" {
  description = "Version of PostgreSQL."
  type        = string
  default     = "POSTGRES_17"
}

variable "user" {
  description = "E-mail of the manager's service account. It logs in with its identity; there is no password."
  type        = string
}

variable "kms_key" {
  description = "Cloud KMS key in the database's region. Null: Google's keys."
  type        = string
  default     = null
}

variable "deletion_protection" {
  description = "Refuse to delete the instance, in Terraform and at Google."
  type        = bool
  default     = true
}

variable "labels" {
  description = "Labels for cost, on every resource that can have them."
  type        = map(string)
  default     = {}
}
