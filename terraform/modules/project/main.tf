# What the project as a whole needs: APIs, the image repository, limits on place and money, quotas, keys.

locals {
  project_number = var.project_number == null ? data.google_project.this[0].number : var.project_number

  services = concat(
    [
      "artifactregistry.googleapis.com",
      "cloudresourcemanager.googleapis.com",
      "compute.googleapis.com",
      "connectgateway.googleapis.com",
      "container.googleapis.com",
      "dns.googleapis.com",
      "gkeconnect.googleapis.com",
      "gkehub.googleapis.com",
      "iam.googleapis.com",
      "logging.googleapis.com",
      "monitoring.googleapis.com",
    ],
    var.budget == null ? [] : ["billingbudgets.googleapis.com"],
    length(var.quotas) > 0 ? ["cloudquotas.googleapis.com"] : [],
    length(var.kms_keys) > 0 ? ["cloudkms.googleapis.com"] : [],
    length(var.resource_locations) > 0 ? ["orgpolicy.googleapis.com"] : [],
    var.postgres ? ["sqladmin.googleapis.com"] : [],
  )

  # The value groups that contain a region. europe-west2 (London) and europe-west6 (Zürich) are in Europe, not in the EU.
  location_groups = {
    for region in var.regions : region => compact([
      region,
      "in:${region}-locations",
      startswith(region, "us-") ? "in:us-locations" : "",
      startswith(region, "asia-") ? "in:asia-locations" : "",
      startswith(region, "europe-") ? "in:europe-locations" : "",
      startswith(region, "europe-") && !contains(["europe-west2", "europe-west6"], region) ? "in:eu-locations" : "",
    ])
  }
}

data "google_project" "this" {
  count = var.project_number == null ? 1 : 0

  project_id = var.project_id
}

resource "google_project_service" "this" {
  for_each = toset(local.services)

  project            = var.project_id
  service            = each.key
  disable_on_destroy = false
}

# Images of Meridian. They stay in the manager's region; nodes of other regions pull from there.
resource "google_artifact_registry_repository" "images" {
  project       = var.project_id
  location      = var.location
  repository_id = "meridian"
  description   = "Images of Meridian."
  format        = "DOCKER"
  kms_key_name  = lookup(var.kms_keys, var.location, null)
  labels        = var.labels

  docker_config {
    immutable_tags = true
  }

  depends_on = [google_project_service.this, google_kms_crypto_key_iam_member.agents]
}

resource "google_org_policy_policy" "resource_locations" {
  count = length(var.resource_locations) > 0 ? 1 : 0

  name   = "projects/${var.project_id}/policies/gcp.resourceLocations"
  parent = "projects/${var.project_id}"

  spec {
    rules {
      values {
        allowed_values = var.resource_locations
      }
    }
  }

  depends_on = [google_project_service.this]
}

resource "google_monitoring_notification_channel" "email" {
  for_each = var.notification_emails

  project      = var.project_id
  display_name = "Meridian: ${each.key}"
  type         = "email"
  user_labels  = var.labels
  labels       = { email_address = each.key }

  depends_on = [google_project_service.this]
}

resource "google_billing_budget" "this" {
  count = var.budget == null ? 0 : 1

  billing_account = var.budget.billing_account
  display_name    = "Meridian in ${var.project_id}"

  budget_filter {
    projects        = ["projects/${local.project_number}"]
    calendar_period = "MONTH"
  }

  amount {
    specified_amount {
      currency_code = var.budget.currency
      units         = tostring(var.budget.amount)
    }
  }

  dynamic "threshold_rules" {
    for_each = var.budget.thresholds
    content {
      threshold_percent = threshold_rules.value
    }
  }

  # Accelerators spend a month's budget in days: the forecast warns before the money is gone.
  threshold_rules {
    threshold_percent = 1.0
    spend_basis       = "FORECASTED_SPEND"
  }

  dynamic "all_updates_rule" {
    for_each = length(var.notification_emails) > 0 ? [1] : []
    content {
      monitoring_notification_channels = [for channel in google_monitoring_notification_channel.email : channel.id]
    }
  }

  depends_on = [google_project_service.this]
}

# A preference is a request to Google, which may refuse it. Output `quotas` shows what was granted.
resource "google_cloud_quotas_quota_preference" "this" {
  for_each = var.quotas

  parent        = "projects/${var.project_id}"
  name          = "meridian-${each.key}"
  service       = each.value.service
  quota_id      = each.value.quota_id
  dimensions    = each.value.dimensions
  contact_email = var.quota_contact_email
  justification = "Accelerators for the job queue Meridian."

  quota_config {
    preferred_value = tostring(each.value.value)
  }

  depends_on = [google_project_service.this]
}

# The keys belong to the security team and exist before. Only Google's service agents get the right to use them.
#
# Google makes the service agents of Artifact Registry and of Cloud SQL at their first use, which is after the grant, and
# only the beta provider can make them before. terraform/README.md has the commands that do.
locals {
  service_agents = {
    for agent, domain in {
      gke      = "container-engine-robot"
      compute  = "compute-system"
      registry = "gcp-sa-artifactregistry"
      sql      = "gcp-sa-cloud-sql"
    } : agent => "serviceAccount:service-${local.project_number}@${domain}.iam.gserviceaccount.com"
    if agent != "sql" || var.postgres
  }

  key_users = {
    for pair in setproduct(keys(var.kms_keys), keys(local.service_agents)) : "${pair[0]}/${pair[1]}" => {
      region = pair[0]
      agent  = pair[1]
    }
  }
}

resource "google_kms_crypto_key_iam_member" "agents" {
  for_each = local.key_users

  crypto_key_id = var.kms_keys[each.value.region]
  role          = "roles/cloudkms.cryptoKeyEncrypterDecrypter"
  member        = local.service_agents[each.value.agent]

  depends_on = [google_project_service.this]
}
