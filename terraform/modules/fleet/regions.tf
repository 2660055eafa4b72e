# Google Cloud's regions, and the jurisdiction of each: what residency policies go by.
#
# A region's number is its block of addresses and must never change: append new regions at the end. Blocks up to 61 are
# for regions of this list, 62 is free, 63 is the manager's.

locals {
  known_regions = [
    ["africa-south1", "ZA"], ["asia-east1", "TW"], ["asia-east2", "HK"], ["asia-northeast1", "JP"],
    ["asia-northeast2", "JP"], ["asia-northeast3", "KR"], ["asia-south1", "IN"], ["asia-south2", "IN"],
    ["asia-southeast1", "SG"], ["asia-southeast2", "ID"], ["australia-southeast1", "AU"],
    ["australia-southeast2", "AU"], ["europe-central2", "EU"], ["europe-north1", "EU"], ["europe-north2", "EU"],
    ["europe-southwest1", "EU"], ["europe-west1", "EU"], ["europe-west2", "GB"], ["europe-west3", "EU"],
    ["europe-west4", "EU"], ["europe-west6", "CH"], ["europe-west8", "EU"], ["europe-west9", "EU"],
    ["europe-west10", "EU"], ["europe-west12", "EU"], ["me-central1", "QA"], ["me-central2", "SA"],
    ["me-west1", "IL"], ["northamerica-northeast1", "CA"], ["northamerica-northeast2", "CA"],
    ["northamerica-south1", "MX"], ["southamerica-east1", "BR"], ["southamerica-west1", "CL"], ["us-central1", "US"],
    ["us-east1", "US"], ["us-east4", "US"], ["us-east5", "US"], ["us-south1", "US"], ["us-west1", "US"],
    ["us-west2", "US"], ["us-west3", "US"], ["us-west4", "US"],
  ]

  block_of        = { for index, entry in local.known_regions : entry[0] => index }
  jurisdiction_of = { for entry in local.known_regions : entry[0] => entry[1] }
  manager_block   = 63

  # The fields of an entry in `regions`.
  region_fields = [
    "accelerator_zones", "agent_values", "block", "cluster", "deletion_protection", "jurisdiction", "limits", "mode",
    "pools", "provisionable", "system_pool",
  ]

  # What every pool of `provisionable` has.
  provisionable_fields = ["name", "capacityClass", "labels", "perNode", "maxNodes"]
}
