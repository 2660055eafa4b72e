# The values of the Helm charts. terraform/README.md lists them for the charts' authors.

locals {
  port = 7443

  image_repository = coalesce(var.image_repository, module.project.image_repository)

  # DWS is asked through ProvisioningRequests, in Standard clusters for the pools that queue, in Autopilot for all.
  queued = {
    for region, settings in local.regions : region => settings.mode == "autopilot" || anytrue([
      for pool in values(settings.pools) : try(pool.queued_provisioning, false)
    ])
  }

  # The objects `Cluster` (meridian.dev/v1alpha1): what an administrator says of a cluster, whatever it reports.
  clusters = [
    for region, settings in local.regions : {
      metadata = { name = settings.cluster }
      spec = merge(
        {
          region        = region
          jurisdiction  = settings.jurisdiction
          provisionable = concat(module.worker_cluster[region].provisionable, settings.provisionable)
        },
        local.queued[region] ? { provider = { kind = "ProvisioningRequest", className = "queued-provisioning.gke.io" } } : {},
        length(settings.limits) > 0 ? { limits = settings.limits } : {},
      )
    }
  ]

  manager_values = {
    url = "https://${module.network.manager_host}:${local.port}"

    service = {
      type           = "LoadBalancer"
      port           = local.port
      loadBalancerIP = module.network.manager_address
      annotations = {
        "networking.gke.io/load-balancer-type"                         = "Internal"
        "networking.gke.io/internal-load-balancer-allow-global-access" = "true"
      }
    }

    serviceAccount = {
      name = module.identity.manager_service_account.name
      annotations = module.identity.manager_service_account.email == null ? {} : {
        "iam.gke.io/gcp-service-account" = module.identity.manager_service_account.email
      }
    }

    # Where the certificate of the manager's authority is published, for agents. It is no secret.
    caConfigMap = local.ca_config_map

    # Agents that may join, and for which cluster each speaks. Tokens are checked against the issuer's public keys.
    joinByIssuer = values(module.identity.agents)
    clusters     = local.clusters
    residency    = var.residency_required ? "required" : "optional"

    journal = var.postgres.enabled ? {
      kind = "postgres"
      postgres = {
        database           = module.postgres[0].database
        user               = module.postgres[0].user
        cloudSqlConnection = module.postgres[0].connection_name
      }
    } : { kind = "redb", postgres = null }

    podMonitoring = { enabled = true }
    labels        = local.labels
  }

  ca_config_map = "meridian-manager-ca"

  agent_values = {
    for region, settings in local.regions : region => merge({
      cluster        = settings.cluster
      region         = region
      jurisdiction   = settings.jurisdiction
      manager        = { url = "https://${module.network.manager_host}:${local.port}" }
      join           = { issuer = module.identity.agents[region].issuer, audience = module.identity.agents[region].audience }
      serviceAccount = { name = module.identity.agent_service_account }
      podMonitoring  = { enabled = true }
      labels         = local.labels
    }, settings.agent_values)
  }
}
