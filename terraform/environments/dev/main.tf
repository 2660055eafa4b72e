# Development: the smallest deployment. One project, the manager and one worker cluster in one region, both Autopilot.

locals {
  # Every cluster is reached through the fleet's Connect gateway in its own region, with the caller's IAM identity.
  gateway = "connectgateway.googleapis.com/v1/projects/${module.fleet.project_number}/locations"
  gateways = {
    for region in local.regions_with_provider :
    region => "https://${region}-${local.gateway}/${region}/gkeMemberships/${var.cluster_worker_names_prefix}-${region}"
  }
  manager_gateway = join("", [
    "https://${var.location_manager}-${local.gateway}/${var.location_manager}",
    "/gkeMemberships/${var.cluster_manager_name_prefix}-${var.location_manager}",
  ])

  # Agents trust this authority only.
  manager_ca = try(data.kubernetes_config_map_v1.manager_ca.data["ca.crt"], null)
  agent_values = {
    for region, values in module.fleet.agent_values : region => merge(values, {
      manager = merge(values.manager, { caCertificate = local.manager_ca })
    })
  }
  agent_requires = { "certificate of the manager in ConfigMap `${module.fleet.ca_config_map}`" = local.manager_ca }
}

# Some APIs (budgets, quotas) count requests against a project, which a person's credentials don't name.
provider "google" {
  project               = var.project_id
  billing_project       = var.project_id
  user_project_override = true
}

provider "kubernetes" {
  host  = local.manager_gateway
  token = ephemeral.google_client_config.this.access_token
}

provider "helm" {
  kubernetes = {
    host  = local.manager_gateway
    token = ephemeral.google_client_config.this.access_token
  }
}

# The caller's access token. A data source would write it into the state.
ephemeral "google_client_config" "this" {}

module "fleet" {
  source = "../../modules/fleet"

  project_id                  = var.project_id
  project_number              = var.project_number
  environment                 = "dev"
  location_manager            = var.location_manager
  cluster_manager_name_prefix = var.cluster_manager_name_prefix
  cluster_worker_names_prefix = var.cluster_worker_names_prefix
  regions_workers             = var.regions_workers
  regions                     = var.regions
  image_repository            = var.image_repository
  release_channel             = var.release_channel
  deletion_protection         = var.deletion_protection
  budget                      = var.budget
  quotas                      = var.quotas
  quota_contact_email         = var.quota_contact_email
  notification_emails         = var.notification_emails
  operators                   = var.operators
  viewers                     = var.viewers
  runbook_url                 = var.runbook_url
  labels                      = var.labels
}

module "manager" {
  source = "../../modules/release"

  name             = "meridian-manager"
  chart            = "${var.charts_path}/meridian-manager"
  namespace        = module.fleet.namespace
  meridian_version = var.meridian_version
  image            = "${module.fleet.image_repository}/meridian-manager"
  values           = module.fleet.manager_values
  extra_values     = var.manager_values

  depends_on = [module.fleet]
}

# The name is known only after the first installation, so that the certificate is read after it. An upgrade doesn't
# change the name: the certificate is then read while planning, and agents that don't change aren't touched. A
# `depends_on` or a postcondition at the data source would put the reading off at every change of the manager.
resource "terraform_data" "manager_ca" {
  input = { name = module.fleet.ca_config_map, namespace = module.fleet.namespace }

  depends_on = [module.manager]
}

data "kubernetes_config_map_v1" "manager_ca" {
  metadata {
    name      = terraform_data.manager_ca.output.name
    namespace = terraform_data.manager_ca.output.namespace
  }
}
