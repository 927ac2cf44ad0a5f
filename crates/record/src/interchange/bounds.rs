//! How much a recording may hold. Files come from elsewhere, and a small one can unpack to more than any machine has.

use std::io::{self, ErrorKind, Read};

use lowtide_model::units;

use super::RecordingError;

/// Bytes of text, unpacked.
const TEXT: u64 = 4 << 30;
/// Regions of all snapshots, or bins of all histograms.
pub(super) const REGIONS: usize = 16 << 20;
/// Snapshots of all targets, or rows of usage: a day of ten a second, and more.
pub(super) const SNAPSHOTS: usize = 1 << 20;
/// Targets.
pub(super) const TARGETS: usize = 4096;
/// Bytes of a name or number, and of a line of a CSV. Nothing that a tool writes comes near.
const WORD: usize = 4096;
const LINE: usize = 1 << 20;
/// Objects and lists in each other.
const DEPTH: usize = 32;

/// An error if there are more than so many.
pub(super) fn within(count: usize, most: usize, what: &str) -> Result<(), RecordingError> {
    if count > most { Err(RecordingError::Broken(too_large(most, what))) } else { Ok(()) }
}

fn too_large(most: impl std::fmt::Display, what: &str) -> String {
    format!("too large to be a recording: more than {most} {what}")
}

/// Reads as long as the text stays within bounds.
pub(super) struct Bounded<R, F> {
    from: R,
    left: u64,
    /// Reads every byte, and returns what there is too much of.
    check: F,
}

impl<R: Read, F: FnMut(u8) -> Result<(), String>> Read for Bounded<R, F> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(into)?;
        let too_large = |why| io::Error::new(ErrorKind::FileTooLarge, why);
        self.left = self
            .left
            .checked_sub(units::count(count))
            .ok_or_else(|| too_large(self::too_large(TEXT, "bytes of text")))?;
        into[..count].iter().try_for_each(|byte| (self.check)(*byte)).map_err(too_large)?;
        Ok(count)
    }
}

/// Any text.
pub(super) fn text<R: Read>(from: R) -> impl Read {
    Bounded { from, left: TEXT, check: |_| Ok(()) }
}

/// Text that is read line by line.
pub(super) fn lines<R: Read>(from: R) -> impl Read {
    let mut length = 0;
    let check = move |byte| {
        length = if byte == b'\n' { 0 } else { length + 1 };
        if length > LINE { Err(too_large(LINE, "bytes in a line")) } else { Ok(()) }
    };
    Bounded { from, left: TEXT, check }
}

/// damo's JSON: `[{snapshots: [{regions: [{}]}]}]`.
pub(super) fn json<R: Read>(from: R) -> impl Read {
    let mut nesting = Nesting::default();
    Bounded { from, left: TEXT, check: move |byte| nesting.take(byte) }
}

/// Where in a JSON text a reader is. What is no JSON is left to the parser, which stops there.
#[derive(Default)]
struct Nesting {
    depth: usize,
    opened: [usize; DEPTH],
    word: usize,
    quoted: bool,
    escaped: bool,
}

impl Nesting {
    fn take(&mut self, byte: u8) -> Result<(), String> {
        self.word += 1;
        if self.quoted {
            self.quoted = self.escaped || byte != b'"';
            self.escaped = byte == b'\\' && !self.escaped;
        } else {
            match byte {
                b'"' => (self.quoted, self.word) = (true, 0),
                b'{' | b'[' => self.open()?,
                b'}' | b']' => (self.depth, self.word) = (self.depth.saturating_sub(1), 0),
                b',' | b':' | b' ' | b'\t' | b'\n' | b'\r' => self.word = 0,
                _ => {}
            }
        }
        if self.word > WORD { Err(too_large(WORD, "bytes in a word")) } else { Ok(()) }
    }

    fn open(&mut self) -> Result<(), String> {
        let opened = self.opened.get_mut(self.depth).ok_or_else(|| too_large(DEPTH, "lists in each other"))?;
        *opened += 1;
        let (most, what) = match self.depth {
            1 => (TARGETS, "targets"),
            3 => (SNAPSHOTS, "snapshots"),
            5 => (REGIONS, "regions"),
            _ => (usize::MAX, ""),
        };
        (self.depth, self.word) = (self.depth + 1, 0);
        if *opened > most { Err(too_large(most, what)) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text that goes on and on: a head, a piece again and again.
    fn endless(head: &'static str, piece: &'static str) -> impl Read {
        head.as_bytes().chain(io::Cursor::new(piece.repeat(17 << 20)))
    }

    fn complaint(mut from: impl Read) -> String {
        io::copy(&mut from, &mut io::sink()).unwrap_err().to_string()
    }

    #[test]
    fn every_kind_of_bomb_is_refused() {
        let json = |head, piece| complaint(super::json(endless(head, piece)));
        assert!(json("[", "{},").contains("4096 targets"));
        assert!(json("[{\"snapshots\":[", "[],").contains("1048576 snapshots"));
        assert!(json("[{\"snapshots\":[{\"regions\":[", "{},").contains("16777216 regions"));
        assert!(json("[{\"x\":\"", "[\\\"").contains("bytes in a word"));
        assert!(json("[", "1").contains("bytes in a word"));
        assert!(json("", "[").contains("32 lists in each other"));
        assert!(complaint(lines(endless("timestamp", ","))).contains("bytes in a line"));
    }

    #[test]
    fn ordinary_texts_pass() {
        let text = r#"[{"a\\":"{[\"{","b":[{"regions":[{"c":1},{"c":"2"}]}]}] "#;
        let mut read = String::new();
        json(text.as_bytes()).read_to_string(&mut read).unwrap();
        assert_eq!(read, text);
    }
}
