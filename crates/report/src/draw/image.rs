//! PNG: palette images inside a drawing, and whole drawings.

use super::theme::{HEAT_LEVELS, heat};

/// The heat ramp's cells as a PNG with a palette, entry 0 transparent.
pub(super) fn palette_png(columns: usize, cells: &[u8]) -> Option<Vec<u8>> {
    let width = u32::try_from(columns).ok()?;
    let height = u32::try_from(cells.len().checked_div(columns)?).ok()?;
    let palette: Vec<u8> =
        std::iter::once((0, 0, 0)).chain((0..HEAT_LEVELS).map(heat)).flat_map(|(r, g, b)| [r, g, b]).collect();
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Indexed);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.set_compression(png::Compression::High);
    // Few distinct values next to each other: prediction only makes them many.
    encoder.set_filter(png::Filter::NoFilter);
    encoder.set_palette(palette);
    encoder.set_trns(vec![0]);
    encoder.write_header().ok()?.write_image_data(cells).ok()?;
    Some(out)
}

/// RGB rows as a PNG.
pub(super) fn rgb_png(width: u32, height: u32, rows: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let mut encoder = png::Encoder::new(&mut out, width, height);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    encoder.write_header().ok()?.write_image_data(rows).ok()?;
    Some(out)
}

/// Bytes as text for a `data:` address.
pub(super) fn base64(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut out = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for chunk in bytes.chunks(3) {
        let three = chunk.iter().chain([0, 0].iter()).take(3).fold(0u32, |sum, byte| sum << 8 | u32::from(*byte));
        for digit in 0..4 {
            let index = (three >> (18 - 6 * digit)) & 63;
            let kept = digit <= chunk.len();
            out.push(if kept { char::from(DIGITS[index as usize]) } else { '=' });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    #[test]
    fn base64_of_the_rfc() {
        for (plain, text) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foobar", "Zm9vYmFy")] {
            assert_eq!(super::base64(plain.as_bytes()), text);
        }
    }
}
