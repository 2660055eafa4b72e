# shellcheck shell=bash disable=SC2154
# The definitions of the kinds of jobs that tests/kubernetes/run gives to a cluster: those of the projects themselves, from
# their Go modules. A module is in Go's cache, or is asked of the Go module proxy, and must have the checksum that is here.

# Kind, module, version, checksum and file.
readonly DEFINITIONS=(
    "JobSet sigs.k8s.io/jobset v0.10.1 h1:u8QKifNsrWVrlRFe6w2ofYTqFT9ma2DRHxfeB2m9xyU=
        config/components/crd/bases/jobset.x-k8s.io_jobsets.yaml"
    "PyTorchJob github.com/kubeflow/training-operator v1.9.0 h1:L+ep5YQT1Pq62O3VjW6G+IRQw+NpFlPRJJj8TgydBhQ=
        manifests/base/crds/kubeflow.org_pytorchjobs.yaml"
    "MPIJob github.com/kubeflow/mpi-operator v0.7.0 h1:ID1eyzAFOMofgynEvfy4//S3q7Ra1OSexrggb1VcC1o=
        manifests/base/kubeflow.org_mpijobs.yaml"
    "RayJob github.com/ray-project/kuberay/ray-operator v1.5.0 h1:KCjCQ7PSsvs9Ke+90CZbbs498nuaIJ/JkXk4vd54EVg=
        config/crd/bases/ray.io_rayjobs.yaml"
    "RayCluster github.com/ray-project/kuberay/ray-operator v1.5.0 h1:KCjCQ7PSsvs9Ke+90CZbbs498nuaIJ/JkXk4vd54EVg=
        config/crd/bases/ray.io_rayclusters.yaml"
    "LeaderWorkerSet sigs.k8s.io/lws v0.7.0 h1:qWfzX8+UBak+Hq0+m/PuE3uO0mp/3dmm5q/h/7z31A8=
        config/crd/bases/leaderworkerset.x-k8s.io_leaderworkersets.yaml"
    "TrainJob github.com/kubeflow/trainer/v2 v2.2.0 h1:whChZckEtycLo1UKH/M0hiNaCUozbLvf9JrgmMv+TAg=
        manifests/base/crds/trainer.kubeflow.org_trainjobs.yaml"
)

# Gives a cluster the definitions of all kinds.
define_kinds() {
    local entry kind module version sum file found
    for entry in "${DEFINITIONS[@]}"; do
        read -r -d '' kind module version sum file <<<"$entry" || true
        found="$(cd "$work" && GOWORK=off GOFLAGS=-mod=mod go mod download -json "$module@$version")" ||
            fail "the definition of $kind is not there: $(jq -r .Error <<<"$found")"
        [ "$(jq -r .Sum <<<"$found")" = "$sum" ] || fail "the module of $kind has another checksum: $(jq -r .Sum <<<"$found")"
        # `create`, because the definitions are too large for the annotation that `kubectl apply` writes.
        kube "$1" create -f "$(jq -r .Dir <<<"$found")/$file" >/dev/null
    done
    kube "$1" wait --for=condition=Established crd --all --timeout=120s >/dev/null
}
