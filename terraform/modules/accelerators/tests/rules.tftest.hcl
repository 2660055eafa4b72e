# Every rule about pools: once broken, with its exact sentence, and once kept.

variables {
  region = "europe-west4"
}

run "every_rule_broken" {
  command = plan

  variables {
    pools = {
      "Name_Of_Bad_Form"       = { accelerator = "nvidia-l4" }
      "system"                 = { accelerator = "nvidia-l4" }
      "unknown-accelerator"    = { accelerator = "T4" }
      "machine-of-another"     = { accelerator = "nvidia-l4", machine_type = "a2-highgpu-1g" }
      "count-not-offered"      = { accelerator = "nvidia-tesla-t4", accelerator_count = 3 }
      "count-of-the-machine"   = { accelerator = "nvidia-l4", machine_type = "g2-standard-48", accelerator_count = 1 }
      "small-h100-on-demand"   = { accelerator = "nvidia-h100-80gb", machine_type = "a3-highgpu-1g" }
      "zone-without-it"        = { accelerator = "nvidia-tesla-a100", zones = ["europe-west4-a", "europe-west4-c"] }
      "queued-minimum"         = { accelerator = "nvidia-l4", queued_provisioning = true, min_nodes = 1 }
      "queued-fixed-size"      = { accelerator = "nvidia-l4", queued_provisioning = true, node_count = 2 }
      "queued-spot"            = { accelerator = "nvidia-l4", queued_provisioning = true, spot = true }
      "queued-repaired"        = { accelerator = "nvidia-l4", queued_provisioning = true, auto_repair = true }
      "flex-minimum"           = { accelerator = "nvidia-l4", flex_start = true, min_nodes = 1 }
      "flex-fixed-size"        = { accelerator = "nvidia-l4", flex_start = true, node_count = 2 }
      "flex-spot"              = { accelerator = "nvidia-l4", flex_start = true, spot = true }
      "flex-repaired"          = { accelerator = "nvidia-l4", flex_start = true, auto_repair = true }
      "flex-blue-green"        = { accelerator = "nvidia-l4", flex_start = true, upgrade_strategy = "BLUE_GREEN" }
      "flex-on-tpu"            = { accelerator = "tpu-v6e-slice", flex_start = true, tpu_topology = "2x2" }
      "unknown-strategy"       = { accelerator = "nvidia-l4", upgrade_strategy = "SLOWLY" }
      "minimum-above-maximum"  = { accelerator = "nvidia-l4", min_nodes = 5, max_nodes = 4 }
      "no-nodes-at-all"        = { accelerator = "nvidia-l4", max_nodes = 0 }
      "fixed-size-and-minimum" = { accelerator = "nvidia-l4", node_count = 2, min_nodes = 1 }
      "compact-in-two-zones"   = { accelerator = "nvidia-h100-80gb", compact_placement = true }
      "too-long"               = { accelerator = "nvidia-l4", flex_start = true, max_run_duration_seconds = 604801 }
      "too-short"              = { accelerator = "nvidia-l4", flex_start = true, max_run_duration_seconds = 599 }
      "tpu-without-topology"   = { accelerator = "tpu-v6e-slice" }
      "gpu-with-topology"      = { accelerator = "nvidia-l4", tpu_topology = "2x2" }
      "tpu-of-two-sides"       = { accelerator = "tpu-v5p-slice", tpu_topology = "2x2" }
      "tpu-of-words"           = { accelerator = "tpu-v6e-slice", tpu_topology = "2xfour" }
      "half-a-slice"           = { accelerator = "tpu-v6e-slice", tpu_topology = "4x4", max_nodes = 2 }
      "slice-that-starts-half" = { accelerator = "tpu-v6e-slice", tpu_topology = "4x4", min_nodes = 1 }
      "compact-and-queued" = {
        accelerator = "nvidia-h100-80gb", queued_provisioning = true, compact_placement = true, zones = ["europe-west4-b"]
      }
      "compact-and-flex" = {
        accelerator = "nvidia-h100-80gb", flex_start = true, compact_placement = true, zones = ["europe-west4-b"]
      }
      "compact-too-large" = {
        accelerator = "nvidia-h100-80gb", compact_placement = true, zones = ["europe-west4-b"], max_nodes = 1501
      }
      "queued-reservation" = {
        accelerator = "nvidia-l4", queued_provisioning = true, zones = ["europe-west4-a"], reservation = { name = "r" }
      }
      "flex-reservation" = {
        accelerator = "nvidia-l4", flex_start = true, zones = ["europe-west4-a"], reservation = { name = "r" }
      }
      "spot-reservation" = {
        accelerator = "nvidia-l4", spot = true, zones = ["europe-west4-a"], reservation = { name = "r" }
      }
      "reservation-in-no-zone" = { accelerator = "nvidia-l4", reservation = { name = "r" } }
    }
  }

  assert {
    condition = output.violations == [for line in [
      ["Name_Of_Bad_Form", "write a name of at most 40 lower-case letters, digits and hyphens"],
      ["compact-and-flex", join("; ", [
        "no compact placement on `a3-highgpu-8g` with DWS",
        "write compact_placement = false, or use a3-ultragpu, a4 or a4x",
      ])],
      ["compact-and-queued", join("; ", [
        "no compact placement on `a3-highgpu-8g` with DWS",
        "write compact_placement = false, or use a3-ultragpu, a4 or a4x",
      ])],
      ["compact-in-two-zones", "compact placement is in one zone; write zones with exactly one zone"],
      ["compact-too-large", "compact placement holds at most 1500 nodes; write max_nodes = 1500"],
      ["count-not-offered", "`n1-standard-4` takes 1 or 2 or 4 nvidia-tesla-t4 per node; write accelerator_count = 1 or 2 or 4"],
      ["count-of-the-machine", "`g2-standard-48` takes 4 nvidia-l4 per node; write accelerator_count = 4"],
      ["fixed-size-and-minimum", "node_count fixes the size; remove min_nodes, or remove node_count"],
      ["flex-blue-green", "BLUE_GREEN upgrades don't work with DWS; write upgrade_strategy = \"SURGE\", or leave it out"],
      ["flex-fixed-size", "DWS pools have no fixed size; write max_nodes instead of node_count"],
      ["flex-minimum", "flex-start starts from zero nodes; write min_nodes = 0"],
      ["flex-on-tpu", join("; ", [
        "tpu-v6e-slice has DWS only in asia-northeast1-b, us-east5-a, us-east5-b",
        "write flex_start = false, queued_provisioning = false",
      ])],
      ["flex-repaired", "DWS nodes can't be repaired in place; write auto_repair = false, or leave it out"],
      ["flex-reservation", "flex-start can't use a reservation; remove one of the two"],
      ["flex-spot", "spot and flex-start exclude each other; write spot = false, or flex_start = false"],
      ["gpu-with-topology", "only TPU pools have a topology; remove tpu_topology"],
      ["half-a-slice", "topology 4x4 on `ct6e-standard-4t` is one slice of 4 nodes; write max_nodes = 4, or leave it out"],
      ["machine-of-another", join("; ", [
        "machine type `a2-highgpu-1g` has no nvidia-l4",
        "write machine_type as one of ${join(", ", [
          "g2-standard-12", "g2-standard-16", "g2-standard-24", "g2-standard-32", "g2-standard-4",
          "g2-standard-48", "g2-standard-8", "g2-standard-96",
        ])}",
      ])],
      ["minimum-above-maximum", "write 0 ≤ min_nodes ≤ max_nodes, and max_nodes of at least 1"],
      ["no-nodes-at-all", "write 0 ≤ min_nodes ≤ max_nodes, and max_nodes of at least 1"],
      ["queued-fixed-size", "DWS pools have no fixed size; write max_nodes instead of node_count"],
      ["queued-minimum", "queued provisioning starts from zero nodes; write min_nodes = 0"],
      ["queued-repaired", "DWS nodes can't be repaired in place; write auto_repair = false, or leave it out"],
      ["queued-reservation", "queued provisioning can't use a reservation; remove one of the two"],
      ["queued-spot", "queued provisioning can't use spot capacity; write spot = false, or queued_provisioning = false"],
      ["reservation-in-no-zone", "a reservation is in one zone; write zones with that zone only"],
      ["slice-that-starts-half", "a slice of 4 nodes starts whole; write min_nodes = 0"],
      ["small-h100-on-demand", join("; ", [
        "`a3-highgpu-1g` is sold only as spot or flex-start",
        "write spot = true or flex_start = true, or use a3-highgpu-8g",
      ])],
      ["spot-reservation", "spot capacity is never reserved; write spot = false, or remove reservation"],
      ["system", "the module makes a pool `system` for pods without accelerators; write another name"],
      ["too-long", "a node runs for 7 days at most; write max_run_duration_seconds = 604800 or less"],
      ["too-short", "a node runs for 10 minutes at least; write max_run_duration_seconds = 600 or more"],
      ["tpu-of-two-sides", "tpu-v5p-slice has topologies of 3 sides; write tpu_topology = \"2x2x2\" or the like"],
      ["tpu-of-words", "tpu-v6e-slice has topologies of 2 sides; write tpu_topology = \"2x4\" or the like"],
      ["tpu-without-topology", "a TPU pool needs its topology; write tpu_topology, such as \"2x4\" or \"2x2x2\""],
      ["unknown-accelerator", join("; ", [
        "accelerator `T4` is not known",
        "write one of ${join(", ", [
          "nvidia-a100-80gb", "nvidia-b200", "nvidia-gb200", "nvidia-h100-80gb", "nvidia-h100-mega-80gb",
          "nvidia-h200-141gb", "nvidia-l4", "nvidia-tesla-a100", "nvidia-tesla-t4", "tpu-v5-lite-podslice",
          "tpu-v5p-slice", "tpu-v6e-slice",
        ])}",
      ])],
      ["unknown-strategy", "write upgrade_strategy as SURGE or BLUE_GREEN"],
      ["zone-without-it", "zone europe-west4-c has no nvidia-tesla-a100; write zones out of europe-west4-a, europe-west4-b"],
    ] : "pool `${line[0]}` in europe-west4: ${line[1]}"]
    error_message = "the sentences differ:\n${join("\n", output.violations)}"
  }
}

run "every_rule_kept" {
  command = plan

  variables {
    pools = {
      "t4-queued"    = { accelerator = "nvidia-tesla-t4", queued_provisioning = true, auto_repair = false }
      "t4-four"      = { accelerator = "nvidia-tesla-t4", machine_type = "n1-standard-16", accelerator_count = 4 }
      "l4-flex"      = { accelerator = "nvidia-l4", flex_start = true, max_run_duration_seconds = 604800 }
      "l4-short"     = { accelerator = "nvidia-l4", flex_start = true, max_run_duration_seconds = 600 }
      "l4-both"      = { accelerator = "nvidia-l4", flex_start = true, queued_provisioning = true }
      "l4-spot"      = { accelerator = "nvidia-l4", spot = true, min_nodes = 1, max_nodes = 8 }
      "l4-always"    = { accelerator = "nvidia-l4", node_count = 2, upgrade_strategy = "BLUE_GREEN" }
      "l4-quad"      = { accelerator = "nvidia-l4", machine_type = "g2-standard-48", accelerator_count = 4 }
      "l4-surge"     = { accelerator = "nvidia-l4", flex_start = true, upgrade_strategy = "SURGE" }
      "l4-reserved"  = { accelerator = "nvidia-l4", zones = ["europe-west4-a"], reservation = { name = "r", project = "p" } }
      "a100-one-of"  = { accelerator = "nvidia-tesla-a100", zones = ["europe-west4-b"] }
      "h100-compact" = { accelerator = "nvidia-h100-80gb", compact_placement = true, zones = ["europe-west4-b"], max_nodes = 1500 }
      "h100-small"   = { accelerator = "nvidia-h100-80gb", machine_type = "a3-highgpu-1g", spot = true }
      "h200-flex"    = { accelerator = "nvidia-h200-141gb", flex_start = true, compact_placement = true }
      "v6e-slice"    = { accelerator = "tpu-v6e-slice", tpu_topology = "4x4" }
      "v6e-host"     = { accelerator = "tpu-v6e-slice", tpu_topology = "2x2", max_nodes = 3, min_nodes = 1 }
      "v5p-slice"    = { accelerator = "tpu-v5p-slice", tpu_topology = "2x2x2" }
    }
  }

  assert {
    condition     = output.violations == []
    error_message = "good pools are refused:\n${join("\n", output.violations)}"
  }

  assert {
    condition = { for name, pool in output.pools : name => pool.capacity_class } == {
      "t4-queued"    = "flex-start"
      "t4-four"      = "on-demand"
      "l4-flex"      = "flex-start"
      "l4-short"     = "flex-start"
      "l4-both"      = "flex-start"
      "l4-spot"      = "spot"
      "l4-always"    = "on-demand"
      "l4-quad"      = "on-demand"
      "l4-surge"     = "flex-start"
      "l4-reserved"  = "reservation"
      "a100-one-of"  = "on-demand"
      "h100-compact" = "on-demand"
      "h100-small"   = "spot"
      "h200-flex"    = "flex-start"
      "v6e-slice"    = "on-demand"
      "v6e-host"     = "on-demand"
      "v5p-slice"    = "on-demand"
    }
    error_message = "a pool has the wrong capacity class"
  }

  assert {
    condition     = output.pools["v6e-slice"].max_nodes == 4 && output.pools["v5p-slice"].max_nodes == 2
    error_message = "a TPU slice has chips divided by chips per machine nodes"
  }

  assert {
    condition     = !output.pools["l4-flex"].auto_repair && output.pools["l4-spot"].auto_repair
    error_message = "auto-repair is off for flex-start and queued pools only"
  }

  assert {
    condition     = join(" ", output.pools["a100-one-of"].zones) == "europe-west4-b"
    error_message = "zones that are written are used"
  }

  assert {
    condition     = join(" ", output.pools["l4-flex"].zones) == "europe-west4-a europe-west4-b europe-west4-c"
    error_message = "without zones, a pool is in every zone that offers the accelerator"
  }
}

run "a_region_without_the_accelerator" {
  command = plan

  variables {
    region = "us-east4"
    pools  = { "a100" = { accelerator = "nvidia-tesla-a100" }, "t4" = { accelerator = "nvidia-tesla-t4" } }
  }

  assert {
    condition = output.violations == [
      "pool `a100` in us-east4: us-east4 has no nvidia-tesla-a100; remove the pool, or move it to one of asia-southeast1, europe-west4",
    ]
    error_message = join("\n", output.violations)
  }
}

run "a_region_that_the_table_lacks" {
  command = plan

  variables {
    region = "us-central1"
    pools  = { "l4" = { accelerator = "nvidia-l4" } }
  }

  assert {
    condition = output.violations == [
      join("; ", [
        "pool `l4` in us-central1: which zones of us-central1 have nvidia-l4 is not known",
        "write accelerator_zones = { \"nvidia-l4\" = [\"us-central1-a\"] }, with the real zones",
      ]),
    ]
    error_message = join("\n", output.violations)
  }
}

run "zones_given_by_the_user" {
  command = plan

  variables {
    region            = "us-central1"
    accelerator_zones = { "nvidia-l4" = ["us-central1-a", "us-central1-b"] }
    pools             = { "l4" = { accelerator = "nvidia-l4" } }
  }

  assert {
    condition     = output.violations == [] && join(" ", output.pools["l4"].zones) == "us-central1-a us-central1-b"
    error_message = join("\n", output.violations)
  }
}

run "tpu_flex_where_it_exists" {
  command = plan

  variables {
    region            = "us-east5"
    accelerator_zones = { "tpu-v6e-slice" = ["us-east5-a"] }
    pools             = { "v6e" = { accelerator = "tpu-v6e-slice", flex_start = true, tpu_topology = "2x2" } }
  }

  assert {
    condition     = output.violations == []
    error_message = join("\n", output.violations)
  }
}

run "a_misspelt_field" {
  command = plan

  variables {
    pools          = { "l4" = { accelerator = "nvidia-l4" } }
    written_fields = { "l4" = ["accelerator", "flexstart"] }
  }

  assert {
    condition     = startswith(join("\n", output.violations), "pool `l4` in europe-west4: there is no field `flexstart`; write one of ")
    error_message = join("\n", output.violations)
  }
}

run "a_slice_in_two_zones" {
  command = plan

  variables {
    region            = "us-east5"
    accelerator_zones = { "tpu-v6e-slice" = ["us-east5-a", "us-east5-b"] }
    pools             = { "v6e" = { accelerator = "tpu-v6e-slice", tpu_topology = "4x4" } }
  }

  assert {
    condition = output.violations == [
      "pool `v6e` in us-east5: a slice of 4 nodes is in one zone; write zones with exactly one of us-east5-a, us-east5-b",
    ]
    error_message = join("\n", output.violations)
  }
}

run "a_slice_in_one_zone_and_hosts_in_two" {
  command = plan

  variables {
    region            = "us-east5"
    accelerator_zones = { "tpu-v6e-slice" = ["us-east5-a", "us-east5-b"] }
    pools = {
      "slice" = { accelerator = "tpu-v6e-slice", tpu_topology = "4x4", zones = ["us-east5-b"] }
      "hosts" = { accelerator = "tpu-v6e-slice", tpu_topology = "2x2", max_nodes = 2 }
    }
  }

  assert {
    condition     = output.violations == []
    error_message = join("\n", output.violations)
  }
}

run "autopilot_makes_its_nodes" {
  command = plan

  variables {
    mode  = "autopilot"
    pools = { "l4" = { accelerator = "nvidia-l4" } }
  }

  assert {
    condition = output.violations == [
      "cluster in europe-west4: Autopilot makes its nodes itself; write mode = \"standard\", or remove pools",
    ]
    error_message = join("\n", output.violations)
  }
}

run "an_unknown_mode" {
  command = plan

  variables {
    mode = "manual"
  }

  assert {
    condition     = output.violations == ["cluster in europe-west4: mode `manual` is not known; write standard or autopilot"]
    error_message = join("\n", output.violations)
  }
}

run "only_queued_pools_grow_for_requests" {
  command = plan

  variables {
    pools = {
      "l4-queued"   = { accelerator = "nvidia-l4", queued_provisioning = true }
      "l4-both"     = { accelerator = "nvidia-l4", queued_provisioning = true, flex_start = true }
      "l4-flex"     = { accelerator = "nvidia-l4", flex_start = true }
      "l4-spot"     = { accelerator = "nvidia-l4", spot = true, min_nodes = 1 }
      "l4-always"   = { accelerator = "nvidia-l4", node_count = 2 }
      "l4-reserved" = { accelerator = "nvidia-l4", zones = ["europe-west4-a"], reservation = { name = "r" } }
    }
  }

  assert {
    condition     = output.violations == [] && output.provisionable[*].name == ["l4-both", "l4-queued"]
    error_message = jsonencode(output.provisionable)
  }

  # GKE's own label of flex-start nodes, by which jobs choose them.
  assert {
    condition = [
      for pool in output.provisionable : lookup(pool.labels, "cloud.google.com/gke-flex-start", "none")
    ] == ["true", "none"]
    error_message = jsonencode(output.provisionable)
  }
}

run "autopilot_grows_by_the_tutorials_t4" {
  command = plan

  variables {
    mode = "autopilot"
  }

  assert {
    condition = output.violations == [] && jsonencode(output.provisionable) == jsonencode([{
      name          = "t4"
      capacityClass = "flex-start"
      labels        = { "cloud.google.com/gke-accelerator" = "nvidia-tesla-t4" }
      taints = [
        { key = "nvidia.com/gpu", value = "present", effect = "NoSchedule" },
        { key = "cloud.google.com/gke-queued", value = "true", effect = "NoSchedule" },
      ]
      perNode  = { "nvidia.com/gpu" = "1", cpu = "3920m", memory = "12700Mi" }
      maxNodes = 4
    }])
    error_message = jsonencode(output.provisionable)
  }
}

run "autopilot_where_no_t4_is_known" {
  command = plan

  variables {
    region = "us-central1"
    mode   = "autopilot"
  }

  assert {
    condition     = output.violations == [] && output.provisionable == []
    error_message = jsonencode(output.provisionable)
  }
}

run "autopilot_where_the_user_knows_t4" {
  command = plan

  variables {
    region            = "us-central1"
    mode              = "autopilot"
    accelerator_zones = { "nvidia-tesla-t4" = ["us-central1-a"] }
  }

  assert {
    condition     = output.provisionable[*].name == ["t4"]
    error_message = jsonencode(output.provisionable)
  }
}

run "a_tpu_pool_that_grows" {
  command = plan

  variables {
    region            = "us-east5"
    accelerator_zones = { "tpu-v6e-slice" = ["us-east5-a"] }
    pools             = { "v6e" = { accelerator = "tpu-v6e-slice", queued_provisioning = true, tpu_topology = "2x2" } }
  }

  assert {
    condition     = output.provisionable[0].taints[0].key == "google.com/tpu" && output.provisionable[0].perNode["google.com/tpu"] == "4"
    error_message = jsonencode(output.provisionable)
  }
}

run "what_pods_can_get" {
  command = plan

  variables {
    pools = { "t4" = { accelerator = "nvidia-tesla-t4", queued_provisioning = true } }
  }

  # 4 vCPU less 80 m; 15 GiB less 25 % of 4, 20 % of 4, 10 % of 7 GiB and 100 MiB.
  assert {
    condition = jsonencode(output.provisionable) == jsonencode([{
      name          = "t4"
      capacityClass = "flex-start"
      labels = {
        "cloud.google.com/gke-accelerator" = "nvidia-tesla-t4"
        "cloud.google.com/gke-nodepool"    = "t4"
        "cloud.google.com/gke-queued"      = "true"
      }
      taints = [
        { key = "nvidia.com/gpu", value = "present", effect = "NoSchedule" },
        { key = "cloud.google.com/gke-queued", value = "true", effect = "NoSchedule" },
      ]
      perNode  = { "nvidia.com/gpu" = "1", cpu = "3920m", memory = "12700Mi" }
      maxNodes = 4
    }])
    error_message = jsonencode(output.provisionable)
  }
}
