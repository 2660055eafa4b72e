# Written by ../generate-agents. One Helm provider and one release of the agent for each region.
#
# A provider's address is made of names only, never of the cluster's attributes: so it still works while a region that
# was removed is destroyed.

locals {
  regions_with_provider = [
    "asia-northeast1",
    "asia-southeast1",
    "europe-west1",
    "europe-west4",
    "us-central1",
    "us-east1",
    "us-east4",
    "us-east5",
    "us-west1",
    "us-west4",
  ]

  # Releases by region. Each list has one element if the region is in use, else none.
  agents = {
    "asia-northeast1" = module.agent_asia_northeast1
    "asia-southeast1" = module.agent_asia_southeast1
    "europe-west1"    = module.agent_europe_west1
    "europe-west4"    = module.agent_europe_west4
    "us-central1"     = module.agent_us_central1
    "us-east1"        = module.agent_us_east1
    "us-east4"        = module.agent_us_east4
    "us-east5"        = module.agent_us_east5
    "us-west1"        = module.agent_us_west1
    "us-west4"        = module.agent_us_west4
  }
}

provider "helm" {
  alias = "asia_northeast1"

  kubernetes = {
    host  = local.gateways["asia-northeast1"]
    token = ephemeral.google_client_config.this.access_token
  }
}

module "agent_asia_northeast1" {
  source    = "../../modules/release"
  count     = contains(module.fleet.regions, "asia-northeast1") ? 1 : 0
  providers = { helm = helm.asia_northeast1 }

  name             = "meridian-agent"
  chart            = "${var.charts_path}/meridian-agent"
  namespace        = module.fleet.namespace
  meridian_version = var.meridian_version
  image            = "${module.fleet.image_repository}/meridian-agent"
  values           = local.agent_values["asia-northeast1"]
  requires         = local.agent_requires

  depends_on = [module.fleet]
}

provider "helm" {
  alias = "asia_southeast1"

  kubernetes = {
    host  = local.gateways["asia-southeast1"]
    token = ephemeral.google_client_config.this.access_token
  }
}

module "agent_asia_southeast1" {
  source    = "../../modules/release"
  count     = contains(module.fleet.regions, "asia-southeast1") ? 1 : 0
  providers = { helm = helm.asia_southeast1 }

  name             = "meridian-agent"
  chart            = "${var.charts_path}/meridian-agent"
  namespace        = module.fleet.namespace
  meridian_version = var.meridian_version
  image            = "${module.fleet.image_repository}/meridian-agent"
  values           = local.agent_values["asia-southeast1"]
  requires         = local.agent_requires

  depends_on = [module.fleet]
}

provider "helm" {
  alias = "europe_west1"

  kubernetes = {
    host  = local.gateways["europe-west1"]
    token = ephemeral.google_client_config.this.access_token
  }
}

module "agent_europe_west1" {
  source    = "../../modules/release"
  count     = contains(module.fleet.regions, "europe-west1") ? 1 : 0
  providers = { helm = helm.europe_west1 }

  name             = "meridian-agent"
  chart            = "${var.charts_path}/meridian-agent"
  namespace        = module.fleet.namespace
  meridian_version = var.meridian_version
  image            = "${module.fleet.image_repository}/meridian-agent"
  values           = local.agent_values["europe-west1"]
  requires         = local.agent_requires

  depends_on = [module.fleet]
}

provider "helm" {
  alias = "europe_west4"

  kubernetes = {
    host  = local.gateways["europe-west4"]
    token = ephemeral.google_client_config.this.access_token
  }
}

module "agent_europe_west4" {
  source    = "../../modules/release"
  count     = contains(module.fleet.regions, "europe-west4") ? 1 : 0
  providers = { helm = helm.europe_west4 }

  name             = "meridian-agent"
  chart            = "${var.charts_path}/meridian-agent"
  namespace        = module.fleet.namespace
  meridian_version = var.meridian_version
  image            = "${module.fleet.image_repository}/meridian-agent"
  values           = local.agent_values["europe-west4"]
  requires         = local.agent_requires

  depends_on = [module.fleet]
}

provider "helm" {
  alias = "us_central1"

  kubernetes = {
    host  = local.gateways["us-central1"]
    token = ephemeral.google_client_config.this.access_token
  }
}

module "agent_us_central1" {
  source    = "../../modules/release"
  count     = contains(module.fleet.regions, "us-central1") ? 1 : 0
  providers = { helm = helm.us_central1 }

  name             = "meridian-agent"
  chart            = "${var.charts_path}/meridian-agent"
  namespace        = module.fleet.namespace
  meridian_version = var.meridian_version
  image            = "${module.fleet.image_repository}/meridian-agent"
  values           = local.agent_values["us-central1"]
  requires         = local.agent_requires

  depends_on = [module.fleet]
}

provider "helm" {
  alias = "us_east1"

  kubernetes = {
    host  = local.gateways["us-east1"]
    token = ephemeral.google_client_config.this.access_token
  }
}

module "agent_us_east1" {
  source    = "../../modules/release"
  count     = contains(module.fleet.regions, "us-east1") ? 1 : 0
  providers = { helm = helm.us_east1 }

  name             = "meridian-agent"
  chart            = "${var.charts_path}/meridian-agent"
  namespace        = module.fleet.namespace
  meridian_version = var.meridian_version
  image            = "${module.fleet.image_repository}/meridian-agent"
  values           = local.agent_values["us-east1"]
  requires         = local.agent_requires

  depends_on = [module.fleet]
}

provider "helm" {
  alias = "us_east4"

  kubernetes = {
    host  = local.gateways["us-east4"]
    token = ephemeral.google_client_config.this.access_token
  }
}

module "agent_us_east4" {
  source    = "../../modules/release"
  count     = contains(module.fleet.regions, "us-east4") ? 1 : 0
  providers = { helm = helm.us_east4 }

  name             = "meridian-agent"
  chart            = "${var.charts_path}/meridian-agent"
  namespace        = module.fleet.namespace
  meridian_version = var.meridian_version
  image            = "${module.fleet.image_repository}/meridian-agent"
  values           = local.agent_values["us-east4"]
  requires         = local.agent_requires

  depends_on = [module.fleet]
}

provider "helm" {
  alias = "us_east5"

  kubernetes = {
    host  = local.gateways["us-east5"]
    token = ephemeral.google_client_config.this.access_token
  }
}

module "agent_us_east5" {
  source    = "../../modules/release"
  count     = contains(module.fleet.regions, "us-east5") ? 1 : 0
  providers = { helm = helm.us_east5 }

  name             = "meridian-agent"
  chart            = "${var.charts_path}/meridian-agent"
  namespace        = module.fleet.namespace
  meridian_version = var.meridian_version
  image            = "${module.fleet.image_repository}/meridian-agent"
  values           = local.agent_values["us-east5"]
  requires         = local.agent_requires

  depends_on = [module.fleet]
}

provider "helm" {
  alias = "us_west1"

  kubernetes = {
    host  = local.gateways["us-west1"]
    token = ephemeral.google_client_config.this.access_token
  }
}

module "agent_us_west1" {
  source    = "../../modules/release"
  count     = contains(module.fleet.regions, "us-west1") ? 1 : 0
  providers = { helm = helm.us_west1 }

  name             = "meridian-agent"
  chart            = "${var.charts_path}/meridian-agent"
  namespace        = module.fleet.namespace
  meridian_version = var.meridian_version
  image            = "${module.fleet.image_repository}/meridian-agent"
  values           = local.agent_values["us-west1"]
  requires         = local.agent_requires

  depends_on = [module.fleet]
}

provider "helm" {
  alias = "us_west4"

  kubernetes = {
    host  = local.gateways["us-west4"]
    token = ephemeral.google_client_config.this.access_token
  }
}

module "agent_us_west4" {
  source    = "../../modules/release"
  count     = contains(module.fleet.regions, "us-west4") ? 1 : 0
  providers = { helm = helm.us_west4 }

  name             = "meridian-agent"
  chart            = "${var.charts_path}/meridian-agent"
  namespace        = module.fleet.namespace
  meridian_version = var.meridian_version
  image            = "${module.fleet.image_repository}/meridian-agent"
  values           = local.agent_values["us-west4"]
  requires         = local.agent_requires

  depends_on = [module.fleet]
}
