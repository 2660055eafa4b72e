# tflint with every rule of its own. There is no rule set for Google here: validation uses the provider's real schema.

plugin "terraform" {
  enabled = true
  preset  = "all"
}

# Each file holds one concern, and is named for it.
rule "terraform_standard_module_structure" {
  enabled = false
}
