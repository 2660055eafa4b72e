output "cluster_names_and_regions" {
  description = "Worker clusters, in the shape of the public tutorial: name, region, network and subnet."
  value       = module.fleet.cluster_names_and_regions
}

output "clusters" {
  description = "Worker clusters by region: names, resource name, membership, subnet, pools."
  value       = module.fleet.clusters
}

output "manager_cluster" {
  description = "The manager's cluster: name, region and resource name."
  value       = module.fleet.manager_cluster
}

output "kubeconfig_commands" {
  description = "By context: the command that makes it."
  value       = module.fleet.kubeconfig_commands
}

output "manager_url" {
  description = "URL of the manager, inside the network."
  value       = module.fleet.manager_url
}

output "image_repository" {
  description = "Where the images of Meridian are pushed to."
  value       = module.fleet.image_repository
}

output "join_state" {
  description = "By region: the cluster's name in Meridian, the issuer that the manager trusts, and what Helm says of the agent."
  value = {
    for region, agent in module.fleet.agents : region => {
      cluster          = agent.cluster
      trusted_issuer   = agent.issuer
      trusted_subject  = agent.subject
      agent_release    = one(local.agents[region][*].status)
      meridian_version = one(local.agents[region][*].meridian_version)
    }
  }
}

output "join_state_command" {
  description = "Shows which agents have joined and when each was last heard, as the manager sees it."
  value       = "meridian get clusters -o wide"
}

output "cluster_objects" {
  description = "The objects `Cluster` of the regions, as YAML. The manager applies them by itself."
  value       = module.fleet.cluster_objects
}

output "metrics_commands" {
  description = "Run once: a user with the role meridian-metrics, and the Secret that collectors of the manager's metrics read."
  value       = module.fleet.metrics_commands
}

output "quotas" {
  description = "By quota preference: the requested value (`asked`) and the granted one."
  value       = module.fleet.quotas
}
