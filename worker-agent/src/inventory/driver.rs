//! A stand-in for the NVIDIA driver's library, for tests: the used part of NVML's C interface, with two GPUs.

use nvml_wrapper::Nvml;
use nvml_wrapper::error::NvmlError;
use std::path::Path;

/// `COUNT_STATUS` is the status of the call that lists GPUs; with `NOT_SUPPORTED` the GPUs report no
/// activity.
const SOURCE: &str = r#"
#include <string.h>
#ifndef COUNT_STATUS
#define COUNT_STATUS 0
#endif
#ifdef NOT_SUPPORTED
#define ACTIVITY_STATUS 3
#else
#define ACTIVITY_STATUS 0
#endif
typedef unsigned long long u64;
struct memory { unsigned version; u64 total, reserved, free, used; };
struct utilization { unsigned gpu, memory; };
int nvmlInit_v2(void) { return 0; }
int nvmlShutdown(void) { return 0; }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 2; return COUNT_STATUS; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = (void *)(long)(index + 1);
    return 0;
}
int nvmlDeviceGetName(void *device, char *name, unsigned length) {
    strncpy(name, "Tesla T4", length);
    return device == 0;
}
int nvmlDeviceGetUUID(void *device, char *uuid, unsigned length) {
    strncpy(uuid, "GPU-0", length);
    uuid[4] += (long)device;
    return 0;
}
int nvmlDeviceGetUtilizationRates(void *device, struct utilization *rates) {
    rates->gpu = 40 * (long)device;
    return ACTIVITY_STATUS;
}
int nvmlDeviceGetMemoryInfo_v2(void *device, struct memory *memory) {
    memory->used = (u64)(long)device << 30;
    return ACTIVITY_STATUS;
}
int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    *milliwatts = 70500;
    return ACTIVITY_STATUS;
}
"#;

/// Compiles the library with these definitions and loads it.
pub(super) fn load(directory: &Path, defines: &[&str]) -> Result<Nvml, NvmlError> {
    let source = directory.join("driver.c");
    std::fs::write(&source, SOURCE).unwrap();
    let library = directory.join(format!("libnvidia-ml-{}.so", defines.join("-")));
    let mut compiler = std::process::Command::new("cc");
    let built = compiler
        .args(["-shared", "-fPIC", "-w", "-o"])
        .args([&library, &source])
        .args(defines.iter().map(|define| format!("-D{define}")))
        .status();
    assert!(built.unwrap().success());
    Nvml::builder().lib_path(library.as_os_str()).init()
}
