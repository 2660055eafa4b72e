# Dashboards. Those of Cloud Monitoring are taken as they are. Those of Grafana are translated panel by panel: title,
# place, queries and unit. Grafana's variables match everything, because Cloud Monitoring has another kind of filter. To
# use the variables, open the same files in Grafana.

locals {
  files = var.dashboards_path == null ? toset([]) : fileset(var.dashboards_path, "*.json")

  sources = { for file in local.files : trimsuffix(file, ".json") => jsondecode(file("${var.dashboards_path}/${file}")) }

  native  = { for name, source in local.sources : name => source if can(source.displayName) }
  grafana = { for name, source in local.sources : name => source if !can(source.displayName) }

  # Panels of collapsed rows are inside the row.
  panels = {
    for name, source in local.grafana : name => [
      for panel in flatten([
        for panel in try(source.panels, []) : concat([panel], try(panel.panels, []))
      ]) : panel if try(panel.type, "row") != "row"
    ]
  }

  # Grafana's grid has 24 columns, Cloud Monitoring's 48.
  grid = 2

  units = {
    s = "s", ms = "ms", bytes = "By", decbytes = "By", percent = "%", percentunit = "10^2.%", reqps = "1/s", ops = "1/s"
  }

  # In a replacement, two dollar signs stand for one.
  label_reference    = "$$${metric.labels.$1}"
  interval_reference = "$$${__interval}"

  # Grafana's queries in Cloud Monitoring's words: first intervals, then variables that stand for a whole value, then
  # variables inside of one. A variable matches everything.
  expressions = toset(flatten([
    for panels in values(local.panels) : [
      for panel in panels : [for target in try(panel.targets, []) : target.expr if try(target.expr, "") != ""]
    ]
  ]))
  with_intervals = {
    for expression in local.expressions : expression => replace(
      expression, "/\\$\\{?__(rate_interval|interval|range)\\}?/", local.interval_reference,
    )
  }
  with_values = {
    for expression, query in local.with_intervals : expression => replace(
      query, "/=~? *\"\\$\\{?[a-z][a-z_]*(:[a-z]+)?\\}?\"/", "=~\".*\"",
    )
  }
  queries = {
    for expression, query in local.with_values : expression => replace(
      query, "/\\$([a-z][a-z_]*|\\{[a-z][a-z_]*(:[a-z]+)?\\})/", ".*",
    )
  }

  widgets = {
    for name, panels in local.panels : name => [
      for panel in panels : {
        xPos   = local.grid * try(panel.gridPos.x, 0)
        yPos   = local.grid * try(panel.gridPos.y, 0)
        width  = local.grid * try(panel.gridPos.w, 12)
        height = local.grid * try(panel.gridPos.h, 8)
        widget = merge(
          { title = try(panel.title, "") },
          # One of the two. A condition with two kinds of objects is refused by Terraform.
          {
            for kind, content in {
              text = { content = try(panel.options.content, ""), format = "MARKDOWN" }
              xyChart = {
                dataSets = [
                  for target in try(panel.targets, []) : {
                    plotType       = "LINE"
                    legendTemplate = replace(try(target.legendFormat, ""), "/\\{\\{ *([a-z_]+) *\\}\\}/", local.label_reference)
                    timeSeriesQuery = {
                      unitOverride    = lookup(local.units, try(panel.fieldConfig.defaults.unit, ""), "")
                      prometheusQuery = local.queries[target.expr]
                    }
                  } if try(target.expr, "") != ""
                ]
              }
            } : kind => content if kind == (panel.type == "text" ? "text" : "xyChart")
          },
        )
      }
    ]
  }

  dashboards = merge(
    { for name, source in local.native : name => merge(source, { labels = merge(try(source.labels, {}), var.labels) }) },
    {
      for name, source in local.grafana : name => {
        displayName  = try(source.title, name)
        labels       = var.labels
        mosaicLayout = { columns = 48, tiles = local.widgets[name] }
      }
    },
  )
}

resource "google_monitoring_dashboard" "this" {
  for_each = local.dashboards

  project        = var.project_id
  dashboard_json = jsonencode(each.value)

  lifecycle {
    precondition {
      condition     = length(try(each.value.mosaicLayout.tiles, ["native"])) > 0
      error_message = "Dashboard `${each.key}` has no panel that can be translated; look at ${each.key}.json."
    }
  }
}
