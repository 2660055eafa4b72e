# The whole deployment but for what runs inside the clusters: one network, the manager's cluster, a worker cluster per
# region, identities, and what watches them. Environments add the Helm releases, because those need a provider for each
# cluster, which a module can't have.

locals {
  labels = merge(
    { app = "meridian", environment = var.environment, managed-by = "terraform" },
    var.labels,
  )

  # `regions` where it has entries, else the tutorial's list.
  written = length(keys(var.regions)) > 0 ? keys(var.regions) : var.regions_workers

  regions = {
    for region in local.written : region => {
      name              = "${var.cluster_worker_names_prefix}-${region}"
      cluster           = try(var.regions[region].cluster, "${var.cluster_worker_names_prefix}-${region}")
      jurisdiction      = try(var.regions[region].jurisdiction, local.jurisdiction_of[region])
      block             = try(var.regions[region].block, local.block_of[region])
      mode              = try(var.regions[region].mode, "autopilot")
      pools             = try(var.regions[region].pools, {})
      accelerator_zones = try(var.regions[region].accelerator_zones, {})
      system_pool       = try(var.regions[region].system_pool, {})
      limits            = try(var.regions[region].limits, {})
      provisionable     = try(var.regions[region].provisionable, null)
      agent_values      = try(var.regions[region].agent_values, {})
      protected         = try(var.regions[region].deletion_protection, var.deletion_protection)
    }
  }

  manager_name = "${var.cluster_manager_name_prefix}-${var.location_manager}"
}

module "project" {
  source = "../project"

  project_id          = var.project_id
  project_number      = var.project_number
  location            = var.location_manager
  regions             = setunion([var.location_manager], keys(local.regions))
  resource_locations  = var.resource_locations
  budget              = var.budget
  quotas              = var.quotas
  quota_contact_email = var.quota_contact_email
  notification_emails = var.notification_emails
  kms_keys            = var.kms_keys
  postgres            = var.postgres.enabled
  labels              = local.labels
}

module "network" {
  source = "../network"

  project_id     = module.project.project_id
  name           = var.network_name
  cidr           = var.network_cidr
  manager_domain = var.manager_domain
  manager_subnet = local.manager_name
  labels         = local.labels

  subnets = merge(
    { (local.manager_name) = { region = var.location_manager, block = local.manager_block } },
    { for region, settings in local.regions : settings.name => { region = region, block = settings.block } },
  )
}

module "identity" {
  source = "../identity"

  project_id = module.project.project_id
  manager    = { name = local.manager_name, location = var.location_manager }
  repository = module.project.repository
  postgres   = var.postgres.enabled
  operators  = var.operators
  viewers    = var.viewers

  workers = {
    for region, settings in local.regions : region => {
      name         = settings.name
      cluster      = settings.cluster
      jurisdiction = settings.jurisdiction
    }
  }
}

module "manager_cluster" {
  source = "../manager-cluster"

  project_id           = module.project.project_id
  name                 = local.manager_name
  location             = var.location_manager
  network              = module.network.network
  subnet               = module.network.subnets[local.manager_name]
  node_service_account = module.identity.node_service_accounts[local.manager_name]
  authorized_networks  = var.authorized_networks
  release_channel      = var.release_channel
  deletion_protection  = var.deletion_protection
  kms_key              = lookup(var.kms_keys, var.location_manager, null)
  labels               = merge(local.labels, { "meridian-role" = "manager" })
}

module "worker_cluster" {
  source   = "../worker-cluster"
  for_each = local.regions

  project_id           = module.project.project_id
  name                 = each.value.name
  location             = each.key
  mode                 = each.value.mode
  pools                = each.value.pools
  accelerator_zones    = each.value.accelerator_zones
  system_pool          = each.value.system_pool
  network              = module.network.network
  subnet               = module.network.subnets[each.value.name]
  node_service_account = module.identity.node_service_accounts[each.value.name]
  authorized_networks  = var.authorized_networks
  release_channel      = var.release_channel
  deletion_protection  = each.value.protected
  kms_key              = lookup(var.kms_keys, each.key, null)
  labels               = merge(local.labels, { "meridian-role" = "worker", "meridian-cluster" = each.value.cluster })
}

module "postgres" {
  source = "../postgres"
  count  = var.postgres.enabled ? 1 : 0

  project_id          = module.project.project_id
  location            = var.location_manager
  network             = module.network.network
  subnet              = module.network.subnets[local.manager_name].id
  tier                = var.postgres.tier
  user                = module.identity.manager_service_account.email
  kms_key             = lookup(var.kms_keys, var.location_manager, null)
  deletion_protection = var.deletion_protection
  labels              = local.labels
}

module "observability" {
  source = "../observability"

  project_id            = module.project.project_id
  alert_rule_files      = var.alert_rule_files
  runbook_url           = var.runbook_url
  dashboards_path       = var.dashboards_path
  notification_channels = module.project.notification_channels
  labels                = local.labels
}
