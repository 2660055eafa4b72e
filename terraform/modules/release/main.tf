# One Helm release: the manager, or an agent. Another `meridian_version` is an upgrade; one that doesn't become ready is
# rolled back.

resource "helm_release" "this" {
  name             = var.name
  namespace        = var.namespace
  create_namespace = true
  chart            = var.chart
  atomic           = true
  cleanup_on_fail  = true
  max_history      = 10
  timeout          = var.timeout_seconds

  values = concat(
    [
      yamlencode(var.values),
      yamlencode({ image = { repository = var.image, tag = var.meridian_version } }),
    ],
    length(var.extra_values) > 0 ? [yamlencode(var.extra_values)] : [],
  )

  lifecycle {
    precondition {
      condition = alltrue([for value in values(var.requires) : value != null && value != ""])
      error_message = join("\n", [
        for name, value in var.requires : "There is no ${name}; look at the log of the manager, then apply again."
        if value == null || value == ""
      ])
    }

    precondition {
      condition     = fileexists("${var.chart}/Chart.yaml")
      error_message = "There is no Helm chart in `${var.chart}`; write charts_path as the folder that has ${var.name}/Chart.yaml."
    }
  }
}
