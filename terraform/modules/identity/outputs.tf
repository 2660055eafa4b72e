output "node_service_accounts" {
  description = "E-mail of the service account of each cluster's nodes, by the cluster's name."
  value       = { for name, account in google_service_account.nodes : name => account.email }
  # Nodes that start without their roles write no logs.
  depends_on = [google_project_iam_member.nodes, google_artifact_registry_repository_iam_member.nodes]
}

output "namespace" {
  description = "Kubernetes namespace of the manager and of the agents."
  value       = var.namespace
}

output "manager_service_account" {
  description = "Kubernetes service account of the manager, and its Google service account if it has one."
  value = {
    name  = local.manager_account
    email = try(google_service_account.manager[0].email, null)
  }
}

output "agents" {
  description = "By region: which token the manager accepts from the agent, and for which cluster. No secret is in it."
  value = {
    for region, worker in var.workers : region => {
      cluster      = worker.cluster
      region       = region
      jurisdiction = worker.jurisdiction
      issuer       = "https://container.googleapis.com/v1/projects/${var.project_id}/locations/${region}/clusters/${worker.name}"
      subject      = "system:serviceaccount:${var.namespace}:${local.agent_account}"
      audience     = "meridian"
    }
  }
}

output "agent_service_account" {
  description = "Kubernetes service account of every agent."
  value       = local.agent_account
}
