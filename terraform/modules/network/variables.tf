variable "project_id" {
  description = "Project that gets the network."
  type        = string
}

variable "name" {
  description = "Name of the network."
  type        = string
  default     = "dws-network"
}

variable "cidr" {
  description = "Range of the whole network: a /8 in 10.0.0.0/8. Every subnet gets one of its 64 blocks."
  type        = string
  default     = "10.0.0.0/8"

  validation {
    condition     = can(cidrsubnet(var.cidr, 6, 63)) && can(regex("/(8|9|10|11|12)$", var.cidr))
    error_message = "`${var.cidr}` is too small for 64 subnets with pods; write a range from /8 to /12, such as 10.0.0.0/8."
  }
}

variable "subnets" {
  description = "Subnets by name: `region`, and `block`, the number of its block (0 to 63), which must never change."
  type        = map(object({ region = string, block = number }))

  validation {
    condition     = length(distinct([for subnet in values(var.subnets) : subnet.block])) == length(var.subnets)
    error_message = "Two subnets have the same block; write another number for one of them."
  }
}

variable "manager_subnet" {
  description = "Key of the subnet in which the manager's address is."
  type        = string
}

variable "manager_domain" {
  description = "Private DNS domain of the manager. The manager is `manager.DOMAIN`."
  type        = string
  default     = "meridian.internal"
}

variable "labels" {
  description = "Labels for cost, on every resource that can have them."
  type        = map(string)
  default     = {}
}
