//! Schemes as given by users, and what can carry them out here.

pub mod acting;

pub mod means;
pub mod worker;

use std::path::Path;

use lowtide_model::scheme::{Scheme, builtin, file};

use crate::failure::{Failure, code, of_file};

/// The schemes of a file, or those that are built in by that name. Fails if there is neither, or the file has a
/// mistake: which, where, and what would be right.
pub fn load(name: &str) -> Result<Vec<Scheme>, Failure> {
    let path = Path::new(name);
    if let Some(schemes) = builtin::named(name).filter(|_| !path.exists()) {
        return Ok(schemes);
    }
    let text = match std::fs::read(path) {
        Ok(bytes) => String::from_utf8(bytes)
            .map_err(|error| Failure::new(code::USAGE, format!("{name}: not text: {error}; give a file of schemes")))?,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let known = builtin::ALL.map(|builtin| builtin.name).join(", ");
            let message = format!("{name}: no such file, and no scheme of that name; built in are {known}");
            return Err(Failure::new(code::GONE, message));
        }
        Err(error) => return Err(of_file(name, &error, "give a file of schemes")),
    };
    file::parse(&text).map_err(|mistake| {
        let (line, column) = (mistake.line, mistake.column);
        Failure::new(code::USAGE, format!("{name}:{line}:{column}: {}", mistake.message))
    })
}
