output "project_id" {
  description = "The project, once its APIs are enabled and its keys can be used."
  value       = var.project_id
  depends_on  = [google_project_service.this, google_kms_crypto_key_iam_member.agents]
}

output "project_number" {
  description = "The project's number."
  value       = local.project_number
}

output "image_repository" {
  description = "Where the images of Meridian are pushed to and pulled from."
  value       = "${var.location}-docker.pkg.dev/${var.project_id}/${google_artifact_registry_repository.images.repository_id}"
}

output "repository" {
  description = "Location and name of the image repository, for IAM."
  value = {
    location = google_artifact_registry_repository.images.location
    name     = google_artifact_registry_repository.images.repository_id
  }
}

output "notification_channels" {
  description = "Resource names of the notification channels."
  value       = [for channel in google_monitoring_notification_channel.email : channel.id]
}

output "quotas" {
  description = "By preference: the requested value (`asked`) and the granted one."
  value = {
    for name, preference in google_cloud_quotas_quota_preference.this : name => {
      asked   = preference.quota_config[0].preferred_value
      granted = preference.quota_config[0].granted_value
    }
  }
}
