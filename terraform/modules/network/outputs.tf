output "network" {
  description = "The network's resource name."
  value       = google_compute_network.this.id
}

output "subnets" {
  description = "By subnet: its resource name, and its ranges for nodes, pods and services."
  value = {
    for name, subnet in google_compute_subnetwork.this : name => {
      id             = subnet.id
      region         = subnet.region
      nodes_cidr     = subnet.ip_cidr_range
      pods_cidr      = subnet.secondary_ip_range[0].ip_cidr_range
      services_cidr  = subnet.secondary_ip_range[1].ip_cidr_range
      pods_range     = subnet.secondary_ip_range[0].range_name
      services_range = subnet.secondary_ip_range[1].range_name
    }
  }
}

output "manager_address" {
  description = "Internal address of the manager's load balancer."
  value       = google_compute_address.manager.address
}

output "manager_address_name" {
  description = "Name of the reserved address, for the load balancer's annotation."
  value       = google_compute_address.manager.name
}

output "manager_host" {
  description = "DNS name of the manager inside the network."
  value       = "manager.${var.manager_domain}"
}
