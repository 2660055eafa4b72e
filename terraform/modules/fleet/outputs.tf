output "regions" {
  description = "Regions with a worker cluster."
  value       = toset(keys(local.regions))
}

output "project_number" {
  description = "The project's number."
  value       = module.project.project_number
}

output "manager_url" {
  description = "URL of the manager, inside the network."
  value       = local.manager_values.url
}

output "clusters" {
  description = "Worker clusters by region: names, resource name, membership, subnet, pools."
  value = {
    for region, settings in local.regions : region => {
      cluster    = settings.cluster
      name       = settings.name
      id         = module.worker_cluster[region].id
      membership = module.worker_cluster[region].membership
      nodes      = module.identity.node_service_accounts[settings.name]
      subnet     = module.network.subnets[settings.name]
      pools      = module.worker_cluster[region].pools
    }
  }
}

output "cluster_names_and_regions" {
  description = "Worker clusters, in the shape of the public tutorial: name, region, network and subnet."
  value = [
    for region, settings in local.regions : {
      name    = settings.name
      region  = region
      network = module.worker_cluster[region].network
      subnet  = module.worker_cluster[region].subnet
    }
  ]
}

output "manager_cluster" {
  description = "The manager's cluster: name and region."
  value       = { name = local.manager_name, region = var.location_manager, id = module.manager_cluster.id }
}

output "kubeconfig_commands" {
  description = "By context: the command that makes it. The contexts have the clusters' names, as in the public tutorial."
  value = {
    for name, region in merge(
      { (local.manager_name) = var.location_manager },
      { for region, settings in local.regions : settings.name => region },
      ) : name => join(" && ", [
        "gcloud container fleet memberships get-credentials ${name} --location ${region} --project ${var.project_id}",
        "kubectl config rename-context connectgateway_${var.project_id}_${region}_${name} ${name}",
    ])
  }
}

output "agents" {
  description = "By region: which token the manager accepts from the agent, and for which cluster."
  value       = module.identity.agents
}

output "namespace" {
  description = "Kubernetes namespace of the manager and of the agents."
  value       = module.identity.namespace
}

output "image_repository" {
  description = "Where the images are pushed to and pulled from."
  value       = local.image_repository
}

output "manager_values" {
  description = "Values of the manager's chart."
  value       = local.manager_values
}

output "agent_values" {
  description = "Values of the agent's chart, by region."
  value       = local.agent_values
}

output "cluster_objects" {
  description = "The objects `Cluster` of the regions, as YAML. The manager applies them by itself."
  value = join("", [
    for cluster in local.clusters : format("---\n%s", yamlencode(merge(
      { apiVersion = "meridian.dev/v1alpha1", kind = "Cluster" }, cluster,
    )))
  ])
}

output "metrics_commands" {
  description = "Run once: a user with the role meridian-metrics, and the Secret that collectors of the manager's metrics read."
  value = [
    join(" ", [
      "printf '%s' '${jsonencode(local.metrics_binding)}'",
      "| ${local.in_manager} -i ${local.as_administrator} apply -f -",
    ]),
    join(" ", [
      "kubectl --context ${local.manager_name} -n ${module.identity.namespace} create secret generic meridian-manager-metrics",
      "--from-literal=token=\"$(${local.in_manager} ${local.as_administrator} token create meridian-metrics --ttl 8760h)\"",
      "--from-literal=ca.crt=\"$(${local.in_manager} meridian-manager-0 -- cat /var/lib/meridian-manager/ca.pem)\"",
    ]),
  ]
}

output "ca_config_map" {
  description = "ConfigMap in which the manager publishes the certificate of its authority, key `ca.crt`."
  value       = local.ca_config_map
}

output "quotas" {
  description = "By quota preference: the requested value (`asked`) and the granted one."
  value       = module.project.quotas
}

output "alerts" {
  description = "Names of the alert policies."
  value       = module.observability.alerts
}

output "dashboards" {
  description = "Names of the dashboards."
  value       = module.observability.dashboards
}
