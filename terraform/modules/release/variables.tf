variable "name" {
  description = "Name of the release: meridian-manager or meridian-agent."
  type        = string
}

variable "chart" {
  description = "Path of the chart's folder."
  type        = string
}

variable "namespace" {
  description = "Kubernetes namespace of the release. It is made if it isn't there."
  type        = string
}

variable "meridian_version" {
  description = "Version of Meridian: the tag of the image."
  type        = string

  validation {
    condition     = can(regex("^[A-Za-z0-9_][A-Za-z0-9_.-]{0,127}$", var.meridian_version)) && var.meridian_version != "latest"
    error_message = "`${var.meridian_version}` doesn't name one version; write the tag of an image, such as 0.1.0."
  }
}

variable "image" {
  description = "The image without its tag."
  type        = string
}

variable "values" {
  description = "Values of the chart."
  type        = any
  default     = {}
}

variable "extra_values" {
  description = "More values, laid over the others: what this module doesn't know."
  type        = any
  default     = {}
}

variable "requires" {
  description = "What must exist before the release, by a name for people. The release fails while one of them is null."
  type        = map(string)
  default     = {}
}

variable "timeout_seconds" {
  description = "Time for the release to become ready. An upgrade that takes longer is rolled back."
  type        = number
  default     = 600
}
