# Alert rules in Prometheus' format become alert policies of Cloud Monitoring. They see the metrics of all clusters,
# which rules inside one cluster don't.

locals {
  own_rules  = "${path.module}/../../../manifests/observability/managed/meridian.rules.yaml"
  rule_files = var.alert_rule_files == null ? [local.own_rules] : var.alert_rule_files

  # Both a plain rule file and the objects PrometheusRule and Rules, which have the groups under `spec`.
  groups = flatten([
    for file in local.rule_files : [
      for document in [yamldecode(file(file))] : try(document.spec.groups, document.groups)
    ]
  ])

  rules = {
    for pair in flatten([
      for group in local.groups : [
        for rule in group.rules : { group = group.name, rule = rule } if can(rule.alert)
      ]
    ]) : pair.rule.alert => pair...
  }

  seconds_of = { s = 1, m = 60, h = 3600, d = 86400, w = 604800 }

  # Prometheus' durations ("1h30m") in seconds, rounded up to whole evaluations.
  evaluation_seconds = 30
  durations = {
    for name, pairs in local.rules : name => local.evaluation_seconds * ceil(sum(concat([0], [
      for part in regexall("([0-9]+)([smhdw])", try(pairs[0].rule.for, "0s")) :
      tonumber(part[0]) * local.seconds_of[part[1]]
    ])) / local.evaluation_seconds)
  }

  severities = { critical = "CRITICAL", page = "CRITICAL", error = "ERROR", warning = "WARNING", ticket = "WARNING" }

  # The rules of this tree link to an address that stands for yours.
  runbooks = "https://meridian.example/docs/runbooks"
  runbook_urls = {
    for name, pairs in local.rules : name => [
      for written in [try(pairs[0].rule.annotations.runbook_url, "")] : (
        !startswith(written, local.runbooks) ? written :
        var.runbook_url == null ? "" :
        "${trimsuffix(var.runbook_url, "/")}${trimprefix(written, local.runbooks)}"
      )
    ][0]
  }

  # `{{ $labels.x }}` is Prometheus' word for what Cloud Monitoring calls a label of the metric.
  texts = {
    for name, pairs in local.rules : name => {
      for key, text in merge(try(pairs[0].rule.annotations, {}), { runbook_url = local.runbook_urls[name] }) : key => replace(
        text,
        "/\\{\\{ *\\$labels\\.([a-z_]+) *\\}\\}/",
        # Two dollar signs stand for one here.
        "$$${metric.label.$1}",
      )
    }
  }
}

resource "google_monitoring_alert_policy" "this" {
  for_each = local.rules

  project               = var.project_id
  display_name          = each.key
  combiner              = "OR"
  severity              = lookup(local.severities, try(each.value[0].rule.labels.severity, "warning"), "WARNING")
  notification_channels = var.notification_channels
  user_labels           = var.labels

  conditions {
    display_name = each.key

    condition_prometheus_query_language {
      query               = trimspace(each.value[0].rule.expr)
      duration            = "${local.durations[each.key]}s"
      evaluation_interval = "${local.evaluation_seconds}s"
      alert_rule          = each.key
      rule_group          = each.value[0].group
      # The manager may not have sent its first metric yet when the policy is made.
      disable_metric_validation = true
    }
  }

  documentation {
    subject   = lookup(local.texts[each.key], "summary", "")
    content   = lookup(local.texts[each.key], "description", "")
    mime_type = "text/markdown"

    dynamic "links" {
      for_each = compact([local.texts[each.key].runbook_url])
      content {
        display_name = "Runbook"
        url          = links.value
      }
    }
  }

  alert_strategy {
    auto_close = "1800s"
  }

  lifecycle {
    precondition {
      condition     = length(each.value) == 1
      error_message = "Alert `${each.key}` is in the rule files ${length(each.value)} times; give each rule a name of its own."
    }
  }
}
