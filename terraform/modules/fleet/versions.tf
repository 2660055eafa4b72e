terraform {
  required_version = ">= 1.11"

  required_providers {
    # Only the modules inside use it; the module's tests put a stand-in in its place.
    # tflint-ignore: terraform_unused_required_providers
    google = {
      source  = "hashicorp/google"
      version = "~> 8.0"
    }
  }
}
