# What Google Cloud offers, as of 2026-04 (GKE documentation) and 2026 (zone catalogue). Data, not rules.
#
# Zones are listed for the three regions of the default deployment. For another region, or a newer fact, set
# `accelerator_zones` in the region's entry: it replaces the zones of this table.

locals {
  catalogue = {
    "nvidia-tesla-t4" = {
      default_machine_type = "n1-standard-4"
      zones = {
        "europe-west4"    = ["europe-west4-a", "europe-west4-b", "europe-west4-c"]
        "us-east4"        = ["us-east4-a", "us-east4-b", "us-east4-c"]
        "asia-southeast1" = ["asia-southeast1-a", "asia-southeast1-b", "asia-southeast1-c"]
      }
    }
    "nvidia-l4" = {
      default_machine_type = "g2-standard-8"
      zones = {
        "europe-west4"    = ["europe-west4-a", "europe-west4-b", "europe-west4-c"]
        "us-east4"        = ["us-east4-a", "us-east4-c"]
        "asia-southeast1" = ["asia-southeast1-a", "asia-southeast1-b", "asia-southeast1-c"]
      }
    }
    "nvidia-tesla-a100" = {
      default_machine_type = "a2-highgpu-1g"
      zones = {
        "europe-west4"    = ["europe-west4-a", "europe-west4-b"]
        "asia-southeast1" = ["asia-southeast1-a", "asia-southeast1-b", "asia-southeast1-c"]
      }
    }
    "nvidia-a100-80gb" = {
      default_machine_type = "a2-ultragpu-1g"
      zones = {
        "europe-west4"    = ["europe-west4-a"]
        "us-east4"        = ["us-east4-c"]
        "asia-southeast1" = ["asia-southeast1-c"]
      }
    }
    "nvidia-h100-80gb" = {
      default_machine_type = "a3-highgpu-8g"
      zones = {
        "europe-west4"    = ["europe-west4-b", "europe-west4-c"]
        "us-east4"        = ["us-east4-a", "us-east4-b", "us-east4-c"]
        "asia-southeast1" = ["asia-southeast1-b", "asia-southeast1-c"]
      }
    }
    "nvidia-h100-mega-80gb" = {
      default_machine_type = "a3-megagpu-8g"
      zones = {
        "europe-west4"    = ["europe-west4-b", "europe-west4-c"]
        "us-east4"        = ["us-east4-a", "us-east4-b", "us-east4-c"]
        "asia-southeast1" = ["asia-southeast1-b", "asia-southeast1-c"]
      }
    }
    "nvidia-h200-141gb" = {
      default_machine_type = "a3-ultragpu-8g"
      zones = {
        "europe-west4" = ["europe-west4-a"]
        "us-east4"     = ["us-east4-b"]
      }
    }
    "nvidia-b200" = {
      default_machine_type = "a4-highgpu-8g"
      zones = {
        "europe-west4"    = ["europe-west4-b"]
        "us-east4"        = ["us-east4-b"]
        "asia-southeast1" = ["asia-southeast1-b"]
      }
    }
    "nvidia-gb200" = {
      default_machine_type = "a4x-highgpu-4g"
      zones                = { "europe-west4" = ["europe-west4-b"] }
    }
    "tpu-v5-lite-podslice" = {
      default_machine_type = "ct5lp-hightpu-4t"
      zones                = { "europe-west4" = ["europe-west4-b"] }
    }
    "tpu-v5p-slice" = {
      default_machine_type = "ct5p-hightpu-4t"
      zones                = { "europe-west4" = ["europe-west4-b"] }
    }
    "tpu-v6e-slice" = {
      default_machine_type = "ct6e-standard-4t"
      zones = {
        "europe-west4"    = ["europe-west4-a"]
        "us-east4"        = ["us-east4-a"]
        "asia-southeast1" = ["asia-southeast1-b"]
      }
    }
  }

  # vCPUs and memory (GB) of a machine, and the accelerators in it. `counts` is set where the user chooses the count.
  # Memory and vCPUs of TPU machines are not known here: jobs on them are limited by chips.
  machines = merge(
    {
      for size in [2, 4, 8, 16, 32] : "n1-standard-${size}" => {
        accelerators = ["nvidia-tesla-t4"], cpu = size, memory = size * 3.75, count = 1
        counts       = { "nvidia-tesla-t4" = [1, 2, 4] }
      }
    },
    {
      for type, size in {
        "g2-standard-4"  = [4, 16, 1], "g2-standard-8" = [8, 32, 1], "g2-standard-12" = [12, 48, 1]
        "g2-standard-16" = [16, 64, 1], "g2-standard-32" = [32, 128, 1], "g2-standard-24" = [24, 96, 2]
        "g2-standard-48" = [48, 192, 4], "g2-standard-96" = [96, 384, 8]
      } : type => { accelerators = ["nvidia-l4"], cpu = size[0], memory = size[1], count = size[2], counts = {} }
    },
    {
      for gpus in [1, 2, 4, 8] : "a2-highgpu-${gpus}g" => {
        accelerators = ["nvidia-tesla-a100"], cpu = 12 * gpus, memory = 85 * gpus, count = gpus, counts = {}
      }
    },
    {
      for gpus in [1, 2, 4, 8] : "a2-ultragpu-${gpus}g" => {
        accelerators = ["nvidia-a100-80gb"], cpu = 12 * gpus, memory = 170 * gpus, count = gpus, counts = {}
      }
    },
    {
      for gpus in [1, 2, 4, 8] : "a3-highgpu-${gpus}g" => {
        accelerators = ["nvidia-h100-80gb"], cpu = 26 * gpus, memory = 234 * gpus, count = gpus, counts = {}
      }
    },
    {
      for type, size in {
        "a2-megagpu-16g"   = ["nvidia-tesla-a100", 96, 1360, 16]
        "a3-megagpu-8g"    = ["nvidia-h100-mega-80gb", 208, 1872, 8]
        "a3-ultragpu-8g"   = ["nvidia-h200-141gb", 224, 2952, 8]
        "a4-highgpu-8g"    = ["nvidia-b200", 224, 3968, 8]
        "a4x-highgpu-4g"   = ["nvidia-gb200", 140, 884, 4]
        "ct5lp-hightpu-1t" = ["tpu-v5-lite-podslice", 0, 0, 1]
        "ct5lp-hightpu-4t" = ["tpu-v5-lite-podslice", 0, 0, 4]
        "ct5lp-hightpu-8t" = ["tpu-v5-lite-podslice", 0, 0, 8]
        "ct5p-hightpu-1t"  = ["tpu-v5p-slice", 0, 0, 1]
        "ct5p-hightpu-2t"  = ["tpu-v5p-slice", 0, 0, 2]
        "ct5p-hightpu-4t"  = ["tpu-v5p-slice", 0, 0, 4]
        "ct6e-standard-1t" = ["tpu-v6e-slice", 0, 0, 1]
        "ct6e-standard-4t" = ["tpu-v6e-slice", 0, 0, 4]
        "ct6e-standard-8t" = ["tpu-v6e-slice", 0, 0, 8]
        } : type => {
        accelerators = [size[0]], cpu = size[1], memory = size[2], count = size[3], counts = {}
      }
    },
  )

  # Smaller H100 machines are sold only as spot or flex-start.
  spot_or_flex_machine_types = ["a3-highgpu-1g", "a3-highgpu-2g", "a3-highgpu-4g"]

  # Compact placement together with DWS works on these machine families only (H4D has no accelerator).
  compact_dws_machine_families = ["a3-ultragpu", "a4-", "a4x-"]

  # Flex-start for TPUs exists in these zones only (GKE 1.33 and newer).
  tpu_flex_zones = {
    "tpu-v5-lite-podslice" = ["us-west4-a"]
    "tpu-v5p-slice"        = ["us-east5-a"]
    "tpu-v6e-slice"        = ["asia-northeast1-b", "us-east5-a", "us-east5-b"]
  }

  # Sides of a TPU topology.
  tpu_dimensions = { "tpu-v5-lite-podslice" = 2, "tpu-v5p-slice" = 3, "tpu-v6e-slice" = 2 }

  run_duration_seconds_min = 600
  run_duration_seconds_max = 604800
  # Nodes of one compact placement group.
  compact_nodes_max = 1500
  # GKE's limit for the name of a node pool.
  pool_name_characters_max = 40
}
