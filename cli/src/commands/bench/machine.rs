//! This machine and the speed of its disk. Figures can be compared only together with them.

use crate::error::Error;
use serde_json::{Value, json};
use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::time::{Duration, Instant};

/// How long to count flushes.
const FLUSHING: Duration = Duration::from_secs(1);
/// Written before each flush: a page, as in a small commit.
const PAGE: [u8; 4_096] = [0x5a; 4_096];

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Machine {
    cores: usize,
    processor: String,
    memory_gib: u64,
    kernel: String,
    disk: String,
    flushes_per_second: f64,
}

impl Machine {
    /// Inspects this machine, and measures the disk of `scratch`. Fails if it can't be written.
    pub(super) fn inspect(scratch: &Path) -> Result<Self, Error> {
        let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
        let cpuinfo = read("/proc/cpuinfo");
        let model = cpuinfo
            .lines()
            .find_map(|line| line.strip_prefix("model name")?.split_once(':'))
            .map_or("unknown", |(_, model)| model.trim());
        let memory = read("/proc/meminfo")
            .lines()
            .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
        let flushes = flushes(&scratch.join("flushes"))
            .map_err(|e| Error::Refused(format!("can't write to `{}`: {e}", scratch.display())))?;
        Ok(Self {
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZero::get),
            processor: model.to_owned(),
            memory_gib: memory.unwrap_or(0).div_ceil(1 << 20),
            kernel: format!("Linux {}", read("/proc/sys/kernel/osrelease").trim()),
            disk: filesystem(&read("/proc/self/mountinfo"), scratch).unwrap_or_else(|| "unknown".to_owned()),
            flushes_per_second: flushes,
        })
    }

    pub(super) fn json(&self) -> Value {
        let Self { cores, processor, memory_gib, kernel, disk, flushes_per_second } = self;
        json!({
            "cores": cores, "processor": processor, "memoryGiB": memory_gib, "kernel": kernel, "disk": disk,
            "flushesPerSecond": flushes_per_second,
        })
    }

    pub(super) fn lines(&self) -> Vec<String> {
        let Self { cores, processor, memory_gib, kernel, disk, flushes_per_second } = self;
        vec![
            format!("machine   {cores} cores, {processor}, {memory_gib} GiB, {kernel}"),
            format!("disk      {disk}, {flushes_per_second:.0} flushes/s of one page"),
        ]
    }
}

/// Sequential writes and flushes of a page per second.
fn flushes(path: &Path) -> std::io::Result<f64> {
    let mut file = File::create(path)?;
    let began = Instant::now();
    let mut count = 0_u32;
    while began.elapsed() < FLUSHING {
        file.write_all(&PAGE)?;
        file.sync_data()?;
        count += 1;
    }
    let rate = f64::from(count) / began.elapsed().as_secs_f64();
    std::fs::remove_file(path)?;
    Ok(rate)
}

/// The filesystem type of the mount point above `path`: the longest one, and of equal ones the newest.
fn filesystem(mountinfo: &str, path: &Path) -> Option<String> {
    let path = std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let mounts = mountinfo.lines().filter_map(|line| {
        let (mount_point, kind) = (line.split(' ').nth(4)?, line.split_once(" - ")?.1.split(' ').next()?);
        path.starts_with(mount_point).then(|| (mount_point.len(), kind.to_owned()))
    });
    mounts.max_by_key(|(length, _)| *length).map(|(_, kind)| kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mount_point_names_the_filesystem() {
        let mounts = "1 0 8:1 / / rw - ext4 /dev/a rw\n2 1 0:5 / /proc rw shared:1 - proc proc rw\n\
                      3 1 8:2 / /missing/data rw - xfs /dev/b rw\n";
        let of = |path: &str| filesystem(mounts, Path::new(path));
        assert_eq!(of("/missing/data/x").as_deref(), Some("xfs"));
        assert_eq!(of("/missing/database").as_deref(), Some("ext4"));
        assert_eq!(filesystem("nonsense", Path::new("/missing")), None);
    }

    #[test]
    fn this_machine_has_cores_and_a_disk() {
        let dir = tempfile::tempdir().unwrap();
        let machine = Machine::inspect(dir.path()).unwrap();
        assert!(
            machine.cores >= 1 && machine.flushes_per_second > 0.0 && machine.disk != "unknown",
            "{machine:?}"
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
