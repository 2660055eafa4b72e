# One network for all clusters. Agents call the manager inside it; no node and no control plane has a public address.

locals {
  # Regions with at least one subnet: each needs a router and a NAT gateway.
  regions = toset([for subnet in values(var.subnets) : subnet.region])

  # A block of a /8 is a /14: one half for pods, the other for nodes and services.
  blocks = { for name, subnet in var.subnets : name => cidrsubnet(var.cidr, 6, subnet.block) }
}

resource "google_compute_network" "this" {
  project                 = var.project_id
  name                    = var.name
  auto_create_subnetworks = false
  routing_mode            = "GLOBAL"
}

resource "google_compute_subnetwork" "this" {
  for_each = var.subnets

  project                  = var.project_id
  name                     = each.key
  network                  = google_compute_network.this.id
  region                   = each.value.region
  ip_cidr_range            = cidrsubnet(local.blocks[each.key], 6, 32)
  private_ip_google_access = true

  secondary_ip_range {
    range_name    = "pods"
    ip_cidr_range = cidrsubnet(local.blocks[each.key], 1, 0)
  }

  secondary_ip_range {
    range_name    = "services"
    ip_cidr_range = cidrsubnet(local.blocks[each.key], 6, 33)
  }

  log_config {
    aggregation_interval = "INTERVAL_10_MIN"
    flow_sampling        = 0.1
    metadata             = "INCLUDE_ALL_METADATA"
  }
}

# Nodes have no public address: images from other registries and job traffic leave through NAT.
resource "google_compute_router" "this" {
  for_each = local.regions

  project = var.project_id
  name    = "${var.name}-${each.key}"
  network = google_compute_network.this.id
  region  = each.key
}

resource "google_compute_router_nat" "this" {
  for_each = local.regions

  project                            = var.project_id
  name                               = "${var.name}-${each.key}"
  router                             = google_compute_router.this[each.key].name
  region                             = each.key
  nat_ip_allocate_option             = "AUTO_ONLY"
  source_subnetwork_ip_ranges_to_nat = "ALL_SUBNETWORKS_ALL_IP_RANGES"

  log_config {
    enable = true
    filter = "ERRORS_ONLY"
  }
}

# The address of the manager's internal load balancer. It is reserved here so that agents know the URL before the
# manager runs, and so that the URL survives a new installation.
resource "google_compute_address" "manager" {
  project      = var.project_id
  name         = "meridian-manager"
  region       = var.subnets[var.manager_subnet].region
  subnetwork   = google_compute_subnetwork.this[var.manager_subnet].id
  address_type = "INTERNAL"
  purpose      = "SHARED_LOADBALANCER_VIP"
  labels       = var.labels
}

resource "google_dns_managed_zone" "manager" {
  project     = var.project_id
  name        = "meridian"
  dns_name    = "${var.manager_domain}."
  description = "Names of the Meridian manager."
  visibility  = "private"
  labels      = var.labels

  private_visibility_config {
    networks {
      network_url = google_compute_network.this.id
    }
  }
}

resource "google_dns_record_set" "manager" {
  project      = var.project_id
  managed_zone = google_dns_managed_zone.manager.name
  name         = "manager.${var.manager_domain}."
  type         = "A"
  ttl          = 60
  rrdatas      = [google_compute_address.manager.address]
}
