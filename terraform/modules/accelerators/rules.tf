# The rules that go across fields. Each is a condition under which a pool is refused, and the sentence that says what to
# write instead. `terraform test` in this folder reads every sentence.

locals {
  accelerator_names = join(", ", sort(keys(local.catalogue)))

  machine_types_of = {
    for accelerator in keys(local.catalogue) : accelerator => join(", ", sort([
      for type, machine in local.machines : type if contains(machine.accelerators, accelerator)
    ]))
  }

  regions_of = {
    for accelerator, entry in local.catalogue : accelerator => join(", ", sort(keys(entry.zones)))
  }

  # A region is known if any accelerator lists it: then a missing entry means that the accelerator isn't offered there.
  region_known = anytrue([for entry in values(local.catalogue) : contains(keys(entry.zones), var.region)])

  pool_rules = {
    for name, p in local.pools : name => [
      # Names and machines
      {
        broken = length(setsubtract(lookup(var.written_fields, name, []), keys(var.pools[name]))) > 0
        sentence = format(
          "there is no field `%s`; write one of %s",
          join("`, `", sort(setsubtract(lookup(var.written_fields, name, []), keys(var.pools[name])))),
          join(", ", sort(keys(var.pools[name]))),
        )
      },
      {
        broken   = !can(regex("^[a-z]([a-z0-9-]*[a-z0-9])?$", name)) || length(name) > local.pool_name_characters_max
        sentence = "write a name of at most ${local.pool_name_characters_max} lower-case letters, digits and hyphens"
      },
      {
        broken   = name == "system"
        sentence = "the module makes a pool `system` for pods without accelerators; write another name"
      },
      {
        broken   = !p.known
        sentence = "accelerator `${p.accelerator}` is not known; write one of ${local.accelerator_names}"
      },
      {
        broken = p.known && !contains(try(p.machine.accelerators, []), p.accelerator)
        sentence = format(
          "machine type `%s` has no %s; write machine_type as one of %s",
          p.machine_type, p.accelerator, lookup(local.machine_types_of, p.accelerator, ""),
        )
      },
      {
        broken = p.known && length(p.counts) > 0 && !contains(p.counts, p.count)
        sentence = format(
          "`%s` takes %s %s per node; write accelerator_count = %s",
          p.machine_type, join(" or ", p.counts), p.accelerator, join(" or ", p.counts),
        )
      },
      {
        broken = contains(local.spot_or_flex_machine_types, p.machine_type) && !p.spot && !p.dws
        sentence = format(
          "`%s` is sold only as spot or flex-start; write spot = true or flex_start = true, or use a3-highgpu-8g",
          p.machine_type,
        )
      },

      # Where
      {
        broken = p.known && length(p.offered_in) == 0 && local.region_known
        sentence = format(
          "%s has no %s; remove the pool, or move it to one of %s",
          var.region, p.accelerator, lookup(local.regions_of, p.accelerator, ""),
        )
      },
      {
        broken = p.known && length(p.offered_in) == 0 && !local.region_known
        sentence = format(
          "which zones of %s have %s is not known; write accelerator_zones = { \"%s\" = [\"%s-a\"] }, with the real zones",
          var.region, p.accelerator, p.accelerator, var.region,
        )
      },
      {
        broken = length(p.offered_in) > 0 && length(setsubtract(p.zones, p.offered_in)) > 0
        sentence = format(
          "zone %s has no %s; write zones out of %s",
          join(", ", sort(setsubtract(p.zones, p.offered_in))), p.accelerator, join(", ", p.offered_in),
        )
      },

      # Queued provisioning
      {
        broken   = p.queued_provisioning && p.min_nodes > 0
        sentence = "queued provisioning starts from zero nodes; write min_nodes = 0"
      },
      {
        broken   = p.queued_provisioning && p.reservation != null
        sentence = "queued provisioning can't use a reservation; remove one of the two"
      },
      {
        broken   = p.queued_provisioning && p.spot
        sentence = "queued provisioning can't use spot capacity; write spot = false, or queued_provisioning = false"
      },

      # Flex-start
      {
        broken   = p.flex_start && p.min_nodes > 0
        sentence = "flex-start starts from zero nodes; write min_nodes = 0"
      },
      {
        broken   = p.flex_start && p.reservation != null
        sentence = "flex-start can't use a reservation; remove one of the two"
      },
      {
        broken   = p.flex_start && p.spot
        sentence = "spot and flex-start exclude each other; write spot = false, or flex_start = false"
      },

      # Both
      {
        broken   = p.dws && p.auto_repair
        sentence = "DWS nodes can't be repaired in place; write auto_repair = false, or leave it out"
      },
      {
        broken   = p.dws && p.node_count != null
        sentence = "DWS pools have no fixed size; write max_nodes instead of node_count"
      },
      {
        broken   = p.dws && p.upgrade_strategy != null && p.upgrade_strategy != "SURGE"
        sentence = "BLUE_GREEN upgrades don't work with DWS; write upgrade_strategy = \"SURGE\", or leave it out"
      },
      {
        broken = p.dws && p.compact_placement && !p.tpu && !anytrue([
          for family in local.compact_dws_machine_families : startswith(p.machine_type, family)
        ])
        sentence = format(
          "no compact placement on `%s` with DWS; write compact_placement = false, or use a3-ultragpu, a4 or a4x",
          p.machine_type,
        )
      },
      {
        broken = p.tpu && p.dws && length(setsubtract(p.zones, lookup(local.tpu_flex_zones, p.accelerator, []))) > 0
        sentence = format(
          "%s has DWS only in %s; write flex_start = false, queued_provisioning = false",
          p.accelerator, join(", ", lookup(local.tpu_flex_zones, p.accelerator, [])),
        )
      },

      # Spot and reservations
      {
        broken   = p.spot && p.reservation != null
        sentence = "spot capacity is never reserved; write spot = false, or remove reservation"
      },
      {
        broken   = p.reservation != null && length(p.zones) != 1
        sentence = "a reservation is in one zone; write zones with that zone only"
      },

      # Size and placement
      {
        broken   = p.max_nodes < 1 || p.min_nodes < 0 || p.min_nodes > p.max_nodes
        sentence = "write 0 ≤ min_nodes ≤ max_nodes, and max_nodes of at least 1"
      },
      {
        broken   = p.node_count != null && p.min_nodes > 0
        sentence = "node_count fixes the size; remove min_nodes, or remove node_count"
      },
      {
        broken   = p.compact_placement && length(p.zones) != 1
        sentence = "compact placement is in one zone; write zones with exactly one zone"
      },
      {
        broken   = p.compact_placement && p.max_nodes > local.compact_nodes_max
        sentence = "compact placement holds at most ${local.compact_nodes_max} nodes; write max_nodes = ${local.compact_nodes_max}"
      },
      {
        broken   = p.upgrade_strategy != null && !contains(["SURGE", "BLUE_GREEN"], coalesce(p.upgrade_strategy, "SURGE"))
        sentence = "write upgrade_strategy as SURGE or BLUE_GREEN"
      },

      # Run time
      {
        broken = p.max_run_duration_seconds != null && (
          coalesce(p.max_run_duration_seconds, 0) > local.run_duration_seconds_max
        )
        sentence = "a node runs for 7 days at most; write max_run_duration_seconds = ${local.run_duration_seconds_max} or less"
      },
      {
        broken = p.max_run_duration_seconds != null && (
          coalesce(p.max_run_duration_seconds, 0) < local.run_duration_seconds_min
        )
        sentence = "a node runs for 10 minutes at least; write max_run_duration_seconds = ${local.run_duration_seconds_min} or more"
      },

      # TPU
      {
        broken   = p.tpu && p.tpu_topology == null
        sentence = "a TPU pool needs its topology; write tpu_topology, such as \"2x4\" or \"2x2x2\""
      },
      {
        broken   = !p.tpu && p.tpu_topology != null
        sentence = "only TPU pools have a topology; remove tpu_topology"
      },
      {
        broken = p.tpu && p.tpu_topology != null && p.known && (
          length(p.topology) != lookup(local.tpu_dimensions, p.accelerator, 0) || anytrue([for side in p.topology : side < 1])
        )
        sentence = format(
          "%s has topologies of %d sides; write tpu_topology = \"%s\" or the like",
          p.accelerator,
          lookup(local.tpu_dimensions, p.accelerator, 0),
          lookup(local.tpu_dimensions, p.accelerator, 2) == 3 ? "2x2x2" : "2x4",
        )
      },
      {
        broken = p.tpu && p.slice_nodes > 1 && p.max_nodes != p.slice_nodes
        sentence = format(
          "topology %s on `%s` is one slice of %d nodes; write max_nodes = %d, or leave it out",
          coalesce(p.tpu_topology, "-"), p.machine_type, p.slice_nodes, p.slice_nodes,
        )
      },
      {
        broken   = p.tpu && p.slice_nodes > 1 && p.min_nodes > 0 && p.min_nodes != p.slice_nodes
        sentence = "a slice of ${p.slice_nodes} nodes starts whole; write min_nodes = 0"
      },
      {
        broken   = p.tpu && p.slice_nodes > 1 && length(p.zones) > 1
        sentence = "a slice of ${p.slice_nodes} nodes is in one zone; write zones with exactly one of ${join(", ", p.zones)}"
      },
    ]
  }

  violations = concat(
    [
      for mode in [var.mode] : "cluster in ${var.region}: mode `${mode}` is not known; write standard or autopilot"
      if !contains(["standard", "autopilot"], mode)
    ],
    [
      for mode in [var.mode] :
      "cluster in ${var.region}: Autopilot makes its nodes itself; write mode = \"standard\", or remove pools"
      if mode == "autopilot" && length(var.pools) > 0
    ],
    flatten([
      for name, rules in local.pool_rules : [
        for rule in rules : "pool `${name}` in ${var.region}: ${rule.sentence}" if rule.broken
      ]
    ]),
  )
}
