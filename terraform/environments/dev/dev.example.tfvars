# The smallest deployment: copy this file to terraform.tfvars and write your own values.

project_id       = "my-project"
meridian_version = "0.1.0"
