//! One process trains in a folder: a second one would go on from a checkpoint that the first is about to replace.

use std::fs::{self, File, TryLockError};
use std::path::Path;

use crate::TrainError;

/// Holds the folder until it is dropped or the process ends, however it ends.
#[derive(Debug)]
pub struct Claim {
    _lock: File,
}

impl Claim {
    /// Claims a run's folder, which is made if it is not there. Fails when another process trains in it.
    pub fn on(folder: &Path) -> Result<Self, TrainError> {
        fs::create_dir_all(folder).map_err(TrainError::io("make", folder))?;
        let path = folder.join("lock");
        let lock = File::create(&path).map_err(TrainError::io("write", &path))?;
        match lock.try_lock() {
            Ok(()) => Ok(Self { _lock: lock }),
            Err(TryLockError::WouldBlock) => Err(TrainError::File {
                path: folder.into(),
                message: "another process trains in this folder; wait until it has ended, or set another run.folder"
                    .into(),
            }),
            // Some network file systems know no locks.
            Err(TryLockError::Error(_)) => Ok(Self { _lock: lock }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn a_folder_is_claimed_once_and_free_again_after() {
        let folder = Scratch::new();
        let run = folder.path().join("run");
        let first = Claim::on(&run).unwrap();
        let refused = Claim::on(&run).unwrap_err().to_string();
        assert!(refused.contains("another process trains in this folder"), "{refused}");
        drop(first);
        Claim::on(&run).unwrap();
    }
}
