# Prometheus' rules and Grafana's dashboards in Cloud Monitoring's words.

mock_provider "google" {
  source = "../../mocks/google"
}

variables {
  project_id = "example-project-1"
  labels     = { app = "meridian" }
}

run "own_rules" {
  command = plan

  assert {
    condition = (
      contains(output.alerts, "MeridianManagerSilent")
      && length(output.alerts) == length(regexall("- alert:", file("../../../manifests/observability/managed/meridian.rules.yaml")))
    )
    error_message = "every rule of the file is an alert policy, and here are: ${join(" ", output.alerts)}"
  }

  assert {
    condition     = length(google_monitoring_dashboard.this) == 0
    error_message = "no folder, no dashboards"
  }
}

run "own_rules_link_to_no_page_that_is_not_there" {
  command = plan

  assert {
    condition = alltrue([
      for policy in values(google_monitoring_alert_policy.this) : length(policy.documentation[0].links) == 0
    ])
    error_message = "an alert links to an address that stands for the user's"
  }
}

run "own_rules_link_to_the_users_pages" {
  command = plan

  variables {
    runbook_url = "https://wiki.example.com/meridian/"
  }

  assert {
    condition = alltrue([
      for policy in values(google_monitoring_alert_policy.this) :
      can(regex("^https://wiki\\.example\\.com/meridian/[a-z-]+\\.md$", policy.documentation[0].links[0].url))
    ])
    error_message = google_monitoring_alert_policy.this["MeridianManagerSilent"].documentation[0].links[0].url
  }
}

run "no_address_of_runbooks" {
  command = plan

  variables {
    runbook_url = "docs/runbooks"
  }

  expect_failures = [var.runbook_url]
}

run "rules_from_a_file" {
  command = plan

  variables {
    alert_rule_files      = ["./tests/rules.yaml"]
    runbook_url           = "https://wiki.example.com/meridian"
    notification_channels = ["projects/example-project-1/notificationChannels/1"]
  }

  assert {
    condition     = output.alerts == ["Slow"]
    error_message = "recording rules are no alerts"
  }

  assert {
    condition = (
      google_monitoring_alert_policy.this["Slow"].conditions[0].condition_prometheus_query_language[0].duration == "5400s"
      && google_monitoring_alert_policy.this["Slow"].conditions[0].condition_prometheus_query_language[0].query == "up == 0"
      && google_monitoring_alert_policy.this["Slow"].severity == "CRITICAL"
      && google_monitoring_alert_policy.this["Slow"].documentation[0].links[0].url == "https://example.com/runbooks/slow"
    )
    error_message = jsonencode(google_monitoring_alert_policy.this["Slow"].conditions)
  }

  assert {
    condition     = google_monitoring_alert_policy.this["Slow"].documentation[0].subject == "Cluster $${metric.label.cluster} is slow."
    error_message = google_monitoring_alert_policy.this["Slow"].documentation[0].subject
  }
}

run "one_name_twice" {
  command = plan

  variables {
    alert_rule_files = ["./tests/rules.yaml", "./tests/rules.yaml"]
  }

  expect_failures = [google_monitoring_alert_policy.this["Slow"]]
}

run "dashboards" {
  command = plan

  variables {
    dashboards_path = "./tests/dashboards"
  }

  assert {
    condition     = output.dashboards == ["grafana", "native"]
    error_message = "every file is a dashboard"
  }

  assert {
    condition     = local.dashboards["native"].gridLayout.widgets[0].title == "Text" && local.dashboards["native"].labels.app == "meridian"
    error_message = "a dashboard of Cloud Monitoring keeps its layout and gets labels"
  }

  assert {
    condition = [
      for tile in local.dashboards["grafana"].mosaicLayout.tiles :
      [tile.widget.title, tile.xPos, tile.yPos, tile.width, tile.height]
      ] == [
      ["Grants", 24, 2, 24, 16], ["Journal", 0, 18, 48, 12], ["Read me", 0, 0, 48, 2],
    ]
    error_message = "panels keep title and place, and rows are opened"
  }

  assert {
    condition = (
      local.dashboards["grafana"].mosaicLayout.tiles[0].widget.xyChart.dataSets[0].timeSeriesQuery.prometheusQuery
      == "sum by (cluster) (rate(meridian_grants_total{region=~\".*\", cluster=~\".*\"}[$${__interval}]))"
    )
    error_message = local.dashboards["grafana"].mosaicLayout.tiles[0].widget.xyChart.dataSets[0].timeSeriesQuery.prometheusQuery
  }

  assert {
    condition = (
      local.dashboards["grafana"].mosaicLayout.tiles[1].widget.xyChart.dataSets[0].timeSeriesQuery.prometheusQuery
      == "meridian_journal_commit_seconds_sum{job=\"prefix-.*\"}"
    )
    error_message = local.dashboards["grafana"].mosaicLayout.tiles[1].widget.xyChart.dataSets[0].timeSeriesQuery.prometheusQuery
  }

  assert {
    condition = (
      local.dashboards["grafana"].mosaicLayout.tiles[0].widget.xyChart.dataSets[0].legendTemplate == "$${metric.labels.cluster}"
    )
    error_message = local.dashboards["grafana"].mosaicLayout.tiles[0].widget.xyChart.dataSets[0].legendTemplate
  }
}
