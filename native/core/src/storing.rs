//! Lines and index entries into the files of the open segment.

use std::fs::{File, metadata};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

/// Bytes, and where they go in an open file.
#[derive(Clone, Copy, Debug)]
pub struct Piece<'a> {
    /// Where to.
    pub file: &'a File,
    /// The place in the file.
    pub at: u64,
    /// What to write.
    pub bytes: &'a [u8],
}

/// Which step did not work, and why.
#[derive(Debug)]
pub enum StoreError {
    /// The lines could not be written: nothing was stored.
    Lines(Error),
    /// The entries could not be written, or not all of them.
    Entries(Error),
    /// All is written, but whether the files still have their names can't be told.
    Look(Error),
}

/// Writes the lines, then the entries, which make them exist; whether the index still is what has its name, with lines
/// that have one.
///
/// # Errors
/// The step that did not work.
pub fn store(lines: Piece, entries: Piece, index: &Path) -> Result<bool, StoreError> {
    lines.file.write_all_at(lines.bytes, lines.at).map_err(StoreError::Lines)?;
    entries.file.write_all_at(entries.bytes, entries.at).map_err(StoreError::Entries)?;
    is_in_place(lines.file, entries.file, index).map_err(StoreError::Look)
}

fn is_in_place(data: &File, index: &File, path: &Path) -> Result<bool, Error> {
    let named = match metadata(path) {
        Ok(named) => named,
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => return Ok(false),
        Err(error) => return Err(error),
    };
    let held = index.metadata()?;
    let is_same = (held.ino(), held.dev()) == (named.ino(), named.dev());
    Ok(is_same && named.is_file() && data.metadata()?.nlink() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{OpenOptions, create_dir, read, remove_dir_all, rename, write};
    use std::path::PathBuf;

    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("storing-{name}-{}", std::process::id()));
            let _ = remove_dir_all(&path);
            create_dir(&path).unwrap();
            Self(path)
        }

        fn open(&self, name: &str) -> File {
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(self.0.join(name)).unwrap()
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = remove_dir_all(&self.0);
        }
    }

    fn put(folder: &Folder, data: &File, index: &File) -> Result<bool, StoreError> {
        let lines = Piece { file: data, at: 2, bytes: b"lines" };
        let entries = Piece { file: index, at: 3, bytes: b"entries" };
        store(lines, entries, &folder.0.join("index"))
    }

    #[test]
    fn both_are_written_where_they_belong() {
        let folder = Folder::new("both");
        assert!(put(&folder, &folder.open("data"), &folder.open("index")).unwrap());
        assert_eq!(read(folder.0.join("data")).unwrap(), b"\0\0lines");
        assert_eq!(read(folder.0.join("index")).unwrap(), b"\0\0\0entries");
    }

    #[test]
    fn files_that_lost_their_names_are_not_in_place() {
        let folder = Folder::new("names");
        let (data, index) = (folder.open("data"), folder.open("index"));
        rename(folder.0.join("index"), folder.0.join("other")).unwrap();
        assert!(!put(&folder, &data, &index).unwrap());
        write(folder.0.join("index"), b"somebody else's").unwrap();
        assert!(!put(&folder, &data, &index).unwrap());
        rename(folder.0.join("other"), folder.0.join("index")).unwrap();
        assert!(put(&folder, &data, &index).unwrap());
        std::fs::remove_file(folder.0.join("data")).unwrap();
        assert!(!put(&folder, &data, &index).unwrap());
    }

    #[test]
    fn the_step_that_did_not_work_is_named() {
        let folder = Folder::new("steps");
        let (data, index) = (folder.open("data"), folder.open("index"));
        let read_only = File::open(folder.0.join("data")).unwrap();
        assert!(matches!(put(&folder, &read_only, &index), Err(StoreError::Lines(_))));
        assert_eq!(read(folder.0.join("index")).unwrap(), b"");
        let read_only = File::open(folder.0.join("index")).unwrap();
        assert!(matches!(put(&folder, &data, &read_only), Err(StoreError::Entries(_))));
    }
}
