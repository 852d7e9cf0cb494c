//! The machine that a number was measured on, and how fast it reads memory.

use std::fs;
use std::hint::black_box;
use std::time::Instant;

use foretoken_engine::Isa;
use foretoken_kernels::arena::{Arena, ArenaSlice};
use foretoken_kernels::pool::Pool;
use serde::{Deserialize, Serialize};

/// Named beside every number.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Machine {
    /// The CPU's own name.
    pub cpu: String,
    /// Instruction set of the kernels.
    pub isa: String,
    /// Threads used.
    pub threads: usize,
    /// foretoken's version.
    pub version: String,
    /// The commit, where the build was told it in `FORETOKEN_COMMIT`.
    pub commit: Option<String>,
}

impl Machine {
    /// This machine.
    pub fn here(isa: Isa, threads: usize) -> Self {
        let info = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let name = info.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        Self {
            cpu: name.map_or_else(|| std::env::consts::ARCH.to_owned(), |(_, name)| name.trim().to_owned()),
            isa: isa.name().to_owned(),
            threads,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            commit: option_env!("FORETOKEN_COMMIT").map(str::to_owned),
        }
    }
}

/// Seconds that all threads of this process have run on a CPU; `None` where the system does not tell.
pub fn cpu_seconds() -> Option<f64> {
    let threads = fs::read_dir("/proc/self/task").ok()?.flatten();
    let nanoseconds = threads.filter_map(|thread| {
        let line = fs::read_to_string(thread.path().join("schedstat")).ok()?;
        line.split_whitespace().next()?.parse::<u64>().ok()
    });
    Some(nanoseconds.sum::<u64>() as f64 / 1e9)
}

/// Reads a buffer far larger than any cache, again and again.
pub struct Bandwidth {
    buffer: ArenaSlice,
    pool: Pool,
    /// Bytes per second, one a reading.
    readings: Vec<f64>,
}

impl Bandwidth {
    const BYTES: usize = 512 << 20;
    const PIECE: usize = 1 << 20;

    /// Fills the buffer: untouched pages would all be one.
    pub fn new(threads: usize) -> Result<Self, foretoken_kernels::arena::ArenaError> {
        let mut buffer = Arena::new(Self::BYTES)?.take(Self::BYTES)?;
        buffer.fill(1);
        Ok(Self { buffer, pool: Pool::new(threads), readings: Vec::new() })
    }

    /// Reads all of it once, with all threads.
    pub fn read(&mut self) {
        let start = Instant::now();
        let buffer = &*self.buffer;
        self.pool.run(Self::BYTES / Self::PIECE, &|_, item| {
            let piece = &buffer[item * Self::PIECE..(item + 1) * Self::PIECE];
            black_box(sum(piece));
        });
        self.readings.push(Self::BYTES as f64 / start.elapsed().as_secs_f64());
    }

    /// The median of the readings, in bytes per second.
    pub fn median(&self) -> f64 {
        median(&self.readings)
    }
}

/// Adds up a piece in eight strands, so that loads and not additions set the pace.
fn sum(piece: &[u8]) -> u64 {
    let mut sums = [0u64; 8];
    for line in piece.as_chunks::<64>().0 {
        for (sum, word) in sums.iter_mut().zip(line.as_chunks::<8>().0) {
            *sum = sum.wrapping_add(u64::from_ne_bytes(*word));
        }
    }
    sums.iter().fold(0, |all, sum| all.wrapping_add(*sum))
}

/// The median; of an even number the upper one. 0 of none.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(0.0)
}
