# What a manager publishes after its first start.

mock_data "kubernetes_config_map_v1" {
  defaults = { data = { "ca.crt" = "-----BEGIN CERTIFICATE-----" } }
}
