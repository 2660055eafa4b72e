# A release is one version of one chart.

mock_provider "helm" {}

variables {
  name             = "meridian-agent"
  chart            = "./tests/chart"
  namespace        = "meridian-system"
  meridian_version = "0.1.0"
  image            = "registry.example.com/meridian-agent"
  values           = { cluster = "eu", image = { tag = "ignored" } }
}

run "values_and_version" {
  command = plan

  assert {
    condition     = yamldecode(output.values[1]).image == { repository = "registry.example.com/meridian-agent", tag = "0.1.0" }
    error_message = "the last word on the image is the version"
  }

  assert {
    condition     = helm_release.this.atomic && helm_release.this.namespace == "meridian-system"
    error_message = "a failed upgrade is rolled back"
  }

  assert {
    condition     = length(helm_release.this.values) == 2
    error_message = "no more values than given"
  }
}

run "values_on_top" {
  command = plan

  variables {
    extra_values = { replicas = 2 }
  }

  assert {
    condition     = yamldecode(output.values[2]) == { replicas = 2 }
    error_message = "more values are laid on top"
  }
}

run "no_moving_tag" {
  command = plan

  variables {
    meridian_version = "latest"
  }

  expect_failures = [var.meridian_version]
}

run "something_is_missing" {
  command = plan

  variables {
    requires = { "certificate of the manager" = null }
  }

  expect_failures = [helm_release.this]
}

run "no_such_chart" {
  command = plan

  variables {
    chart = "./tests/nowhere"
  }

  expect_failures = [helm_release.this]
}
