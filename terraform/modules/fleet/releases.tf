# The values of the Helm charts. terraform/README.md lists them for the charts' authors.

locals {
  port = 7443

  image_repository = coalesce(var.image_repository, module.project.image_repository)

  # What can grow. `provisionable` of an entry adds to the pools of a Standard cluster. Autopilot has no pools, so there it
  # takes the place of the default.
  provisionable = {
    for region, settings in local.regions : region => concat(
      [
        for pool in module.worker_cluster[region].provisionable : pool
        if settings.mode != "autopilot" || settings.provisionable == null
      ],
      [for pool in try(settings.provisionable[*], []) : pool],
    )
  }

  # DWS is asked through ProvisioningRequests. Without a pool that can grow there is nothing to ask for, and the agent
  # refuses a provider.
  queued = { for region, pools in local.provisionable : region => length(pools) > 0 }

  # The objects `Cluster` (meridian.dev/v1alpha1): what an administrator says of a cluster, whatever it reports.
  clusters = [
    for region, settings in local.regions : {
      metadata = { name = settings.cluster }
      spec = merge(
        {
          region        = region
          jurisdiction  = settings.jurisdiction
          provisionable = local.provisionable[region]
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

    # The manager can't keep its journal in the database of `postgres` yet, so no release is switched to it.
    journal = { kind = "redb" }

    podMonitoring = { enabled = true }
    labels        = local.labels
  }

  ca_config_map = "meridian-manager-ca"

  # Commands for people, in the pod, because the administrator's kubeconfig is there.
  in_manager       = "kubectl --context ${local.manager_name} -n ${module.identity.namespace} exec"
  as_administrator = "meridian-manager-0 -- meridian --kubeconfig /var/lib/meridian-manager/admin.kubeconfig"
  metrics_binding = {
    apiVersion = "rbac.authorization.k8s.io/v1"
    kind       = "ClusterRoleBinding"
    metadata   = { name = "meridian-metrics" }
    roleRef    = { apiGroup = "rbac.authorization.k8s.io", kind = "ClusterRole", name = "meridian-metrics" }
    subjects   = [{ apiGroup = "rbac.authorization.k8s.io", kind = "User", name = "meridian-metrics" }]
  }

  agent_values = {
    for region, settings in local.regions : region => merge({
      # Gangs are Jobs on the cluster's own nodes.
      runner         = "kubernetes"
      cluster        = settings.cluster
      region         = region
      jurisdiction   = settings.jurisdiction
      manager        = { url = "https://${module.network.manager_host}:${local.port}" }
      join           = { issuer = module.identity.agents[region].issuer, audience = module.identity.agents[region].audience }
      serviceAccount = { name = module.identity.agent_service_account }
      podMonitoring  = { enabled = true }
      labels         = local.labels
      }, settings.agent_values, {
      # Laid over each other, so that one more value for Kubernetes doesn't take the right to ask for nodes.
      kubernetes = merge({ provisioningRequests = local.queued[region] }, try(settings.agent_values.kubernetes, {}))
    })
  }
}

# Nodes of an Autopilot cluster come for pods or for requests. Without a pool that can grow, no job ever fits there.
check "autopilot_pools" {
  assert {
    condition = alltrue([
      for region, settings in local.regions :
      settings.mode != "autopilot" || settings.provisionable != null || local.queued[region]
    ])
    error_message = join("\n", [
      for region, settings in local.regions : format(
        "Region %s: whether it has nvidia-tesla-t4 is not known, so its Autopilot cluster gets no nodes for jobs; write %s",
        region, "accelerator_zones = { \"nvidia-tesla-t4\" = [\"${region}-a\"] }, or provisionable, in its entry.",
      ) if settings.mode == "autopilot" && settings.provisionable == null && !local.queued[region]
    ])
  }
}
