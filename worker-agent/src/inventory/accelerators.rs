//! How busy the NVIDIA GPUs of this machine are, as NVML reports it.

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

/// Milliwatts per watt.
const MILLI: f64 = 1_000.0;
/// Bytes per MiB, DCGM's unit of frame buffers.
const MIB: f64 = 1_048_576.0;

/// One GPU at one moment. `None` is a value that the GPU doesn't report; a partitioned GPU (MIG) reports no
/// utilisation.
#[derive(Clone, Debug, PartialEq)]
pub struct Reading {
    pub index: u32,
    pub uuid: String,
    pub model: String,
    /// Percent of the time in which a kernel ran.
    pub utilisation_percent: Option<f64>,
    pub memory_used_mib: Option<f64>,
    pub power_watts: Option<f64>,
}

/// The driver's library, which stays loaded.
#[derive(Debug)]
pub struct Accelerators {
    nvml: Nvml,
}

impl Accelerators {
    /// `None` on a machine without a working driver. The inventory reports a broken driver.
    pub fn open() -> Option<Self> {
        Self::started(Nvml::init())
    }

    fn started(nvml: Result<Nvml, NvmlError>) -> Option<Self> {
        nvml.ok().map(|nvml| Self { nvml })
    }

    /// One reading per GPU that can be named now; a lost GPU has none.
    pub fn read(&self) -> Vec<Reading> {
        let count = self.nvml.device_count().unwrap_or(0);
        (0..count).filter_map(|index| reading(index, &self.nvml.device_by_index(index).ok()?).ok()).collect()
    }
}

fn reading(index: u32, device: &Device<'_>) -> Result<Reading, NvmlError> {
    Ok(Reading {
        index,
        uuid: device.uuid()?,
        model: device.name()?,
        utilisation_percent: device.utilization_rates().ok().map(|rates| f64::from(rates.gpu)),
        memory_used_mib: device.memory_info().ok().map(|memory| memory.used as f64 / MIB),
        power_watts: device.power_usage().ok().map(|milliwatts| f64::from(milliwatts) / MILLI),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::driver;

    #[test]
    fn what_a_gpu_doesnt_report_is_absent() {
        let directory = tempfile::tempdir().unwrap();
        let open = |define: &str| Accelerators::started(driver::load(directory.path(), &[define]));
        let read = open("BUSY").unwrap().read();
        let second = Reading {
            index: 1,
            uuid: "GPU-2".into(),
            model: "Tesla T4".into(),
            utilisation_percent: Some(80.0),
            memory_used_mib: Some(2048.0),
            power_watts: Some(70.5),
        };
        assert_eq!((read.len(), &read[1]), (2, &second));
        let silent = open("NOT_SUPPORTED").unwrap().read();
        let without =
            Reading { utilisation_percent: None, memory_used_mib: None, power_watts: None, ..second };
        assert_eq!((silent.len(), &silent[1]), (2, &without));
        assert!(open("COUNT_STATUS=999").unwrap().read().is_empty());
        let absent = directory.path().join("absent.so");
        assert!(Accelerators::started(Nvml::builder().lib_path(absent.as_os_str()).init()).is_none());
    }
}
