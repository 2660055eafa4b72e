# Who may do what. No key and no token is made here: nodes, the manager and agents use workload identity.
#
# An agent proves its identity with a token of its Kubernetes service account. Each GKE cluster is an issuer of its own,
# with a public key at a public address, so the manager can check the token and knows the cluster that it comes from.

locals {
  # Google limits the account's id to 30 characters; a hash keeps shortened names apart.
  account_ids = {
    for name in concat([var.manager.name], [for worker in values(var.workers) : worker.name]) :
    name => length("gke-${name}") <= 30 ? "gke-${name}" : "gke-${substr(name, 0, 17)}-${substr(sha256(name), 0, 8)}"
  }

  manager_account = "meridian-manager"
  agent_account   = "meridian-agent"

  operator_roles = ["roles/gkehub.viewer", "roles/gkehub.gatewayEditor", "roles/container.developer", "roles/monitoring.editor"]
  viewer_roles   = ["roles/gkehub.viewer", "roles/gkehub.gatewayReader", "roles/container.viewer", "roles/monitoring.viewer"]

  grants = merge(
    { for pair in setproduct(var.operators, local.operator_roles) : "${pair[0]} ${pair[1]}" => { member = pair[0], role = pair[1] } },
    { for pair in setproduct(var.viewers, local.viewer_roles) : "${pair[0]} ${pair[1]}" => { member = pair[0], role = pair[1] } },
  )
}

resource "google_service_account" "nodes" {
  for_each = local.account_ids

  project      = var.project_id
  account_id   = each.value
  display_name = "Nodes of ${each.key}"
}

# Logs and metrics, nothing else: the default account of Compute Engine may edit the whole project.
resource "google_project_iam_member" "nodes" {
  for_each = local.account_ids

  project = var.project_id
  role    = "roles/container.defaultNodeServiceAccount"
  member  = google_service_account.nodes[each.key].member
}

resource "google_artifact_registry_repository_iam_member" "nodes" {
  for_each = local.account_ids

  project    = var.project_id
  location   = var.repository.location
  repository = var.repository.name
  role       = "roles/artifactregistry.reader"
  member     = google_service_account.nodes[each.key].member
}

# Cloud SQL knows service accounts, not Kubernetes ones, so the manager gets one if its journal is there.
resource "google_service_account" "manager" {
  count = var.postgres ? 1 : 0

  project      = var.project_id
  account_id   = local.manager_account
  display_name = "Meridian manager"
}

resource "google_service_account_iam_member" "manager" {
  count = var.postgres ? 1 : 0

  service_account_id = google_service_account.manager[0].name
  role               = "roles/iam.workloadIdentityUser"
  member             = "serviceAccount:${var.project_id}.svc.id.goog[${var.namespace}/${local.manager_account}]"
}

resource "google_project_iam_member" "manager" {
  for_each = var.postgres ? toset(["roles/cloudsql.client", "roles/cloudsql.instanceUser"]) : toset([])

  project = var.project_id
  role    = each.key
  member  = google_service_account.manager[0].member
}

resource "google_project_iam_member" "people" {
  for_each = local.grants

  project = var.project_id
  role    = each.value.role
  member  = each.value.member
}
