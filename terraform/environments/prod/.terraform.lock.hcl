# Versions only. The first `terraform init` adds the registry's checksums: commit them then. See terraform/README.md.

provider "registry.terraform.io/hashicorp/google" {
  version     = "8.0.0"
  constraints = "8.0.0, ~> 8.0"
}

provider "registry.terraform.io/hashicorp/helm" {
  version     = "3.2.0"
  constraints = "3.2.0, ~> 3.2"
}

provider "registry.terraform.io/hashicorp/kubernetes" {
  version     = "3.2.1"
  constraints = "3.2.1"
}
