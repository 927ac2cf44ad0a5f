//! SVG and PNG files from one figure.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::OnceLock;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use plotters::backend::{BitMapBackend, DrawingBackend, SVGBackend};
use plotters::element::{Drawable, PointCollection};
use plotters::prelude::DrawingArea;
use plotters::style::{FontStyle, RGBColor, register_font};
use plotters_backend::{
    BackendColor, BackendCoord as Point, BackendStyle, BackendTextStyle, DrawingErrorKind, text_anchor::VPos,
};

use super::theme::{self, HEAT_LEVELS, Ink, heat};
use super::{Drawn, Figure, PaintError, px};

/// Space around the drawing in a file.
const MARGIN: i32 = px(16);

/// Stands before and after the number of an insert: a character that no text may hold.
const MARK: char = '\u{E000}';

/// The backend of plotters that writes SVG or paints pixels.
pub(crate) struct Canvas<'a> {
    backend: Backend<'a>,
    /// Whether the drawing is part of a page whose script reads it.
    live: bool,
    /// Pieces of SVG that plotters' backend cannot write; a text with their number holds their place.
    inserts: Vec<String>,
}

enum Backend<'a> {
    Svg(SVGBackend<'a>),
    Png(BitMapBackend<'a>),
}

type Done = Result<(), DrawingErrorKind<PaintError>>;

fn unite<E: std::error::Error + Send + Sync>(error: DrawingErrorKind<E>) -> DrawingErrorKind<PaintError> {
    DrawingErrorKind::DrawingError(PaintError(error.to_string()))
}

macro_rules! forward {
    ($canvas:ident.$method:ident($($argument:expr),*)) => {
        match &mut $canvas.backend {
            Backend::Svg(backend) => backend.$method($($argument),*).map_err(unite),
            Backend::Png(backend) => backend.$method($($argument),*).map_err(unite),
        }
    };
}

impl DrawingBackend for Canvas<'_> {
    type ErrorType = PaintError;

    fn get_size(&self) -> (u32, u32) {
        match &self.backend {
            Backend::Svg(backend) => backend.get_size(),
            Backend::Png(backend) => backend.get_size(),
        }
    }

    fn ensure_prepared(&mut self) -> Done {
        forward!(self.ensure_prepared())
    }

    fn present(&mut self) -> Done {
        forward!(self.present())
    }

    fn draw_pixel(&mut self, point: Point, color: BackendColor) -> Done {
        forward!(self.draw_pixel(point, color))
    }

    fn draw_line<S: BackendStyle>(&mut self, from: Point, to: Point, style: &S) -> Done {
        self.draw_path([from, to], style)
    }

    fn draw_rect<S: BackendStyle>(&mut self, from: Point, to: Point, style: &S, fill: bool) -> Done {
        forward!(self.draw_rect(from, to, style, fill))
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = Point>>(&mut self, path: I, style: &S) -> Done {
        forward!(self.draw_path(path, style))
    }

    fn draw_circle<S: BackendStyle>(&mut self, center: Point, radius: u32, style: &S, fill: bool) -> Done {
        forward!(self.draw_circle(center, radius, style, fill))
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = Point>>(&mut self, outline: I, style: &S) -> Done {
        forward!(self.fill_polygon(outline, style))
    }

    fn draw_text<S: BackendTextStyle>(&mut self, text: &str, style: &S, (x, mut y): Point) -> Done {
        let text = &text.replace(MARK, "");
        // The bitmap backend places the top of the font's line at the top of the letters.
        if matches!(self.backend, Backend::Png(_)) && matches!(style.anchor().v_pos, VPos::Center) {
            y += px(2);
        }
        forward!(self.draw_text(text, style, (x, y)))
    }
}

impl Canvas<'_> {
    /// Whether a page's script will read this drawing.
    pub(super) fn is_live(&self) -> bool {
        self.live
    }

    /// Writes a piece of SVG as it is.
    pub(super) fn insert(&mut self, svg: String) -> Done {
        let place = format!("{MARK}{}{MARK}", self.inserts.len());
        self.inserts.push(svg);
        forward!(self.draw_text(&place, &super::text(Ink::Text, 12, false), (0, 0)))
    }
}

/// What is drawn, with the inserts at their places.
fn with_inserts(drawn: &str, inserts: &[String]) -> String {
    let mut out = String::with_capacity(drawn.len() + inserts.iter().map(String::len).sum::<usize>());
    let (mut pieces, mut insert) = (drawn.split(MARK), inserts.iter());
    let mut piece = pieces.next().unwrap_or_default();
    // Between two marks is the number; the element around it is dropped.
    while let (Some(svg), Some(_), Some(next)) = (insert.next(), pieces.next(), pieces.next()) {
        out += piece.rfind("<text").map_or(piece, |at| &piece[..at]);
        out += svg;
        piece = next.split_once("</text>\n").map_or(next, |(_, rest)| rest);
    }
    out + piece
}

/// Levels of access rates stretched over a rectangle, given by its upper left and its lower right corner.
pub(crate) struct Raster<C> {
    pub corners: [C; 2],
    pub columns: usize,
    /// Row by row from the top, `columns` each: 0 = nothing, n = level n - 1 of the heat ramp.
    pub cells: Vec<u8>,
}

impl<'a, C> PointCollection<'a, C> for &'a Raster<C> {
    type Point = &'a C;
    type IntoIter = &'a [C];

    fn point_iter(self) -> &'a [C] {
        &self.corners
    }
}

impl<C> Drawable<Canvas<'_>> for Raster<C> {
    fn draw<I: Iterator<Item = Point>>(&self, mut points: I, canvas: &mut Canvas, _: (u32, u32)) -> Done {
        let (Some(from), Some(to)) = (points.next(), points.next()) else { return Ok(()) };
        match &canvas.backend {
            Backend::Svg(_) => {
                let png = self.png().map_err(DrawingErrorKind::DrawingError)?;
                canvas.insert(format!(
                    "<image x=\"{}\" y=\"{}\" width=\"{}\" height=\"{}\" preserveAspectRatio=\"none\" \
                     style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{}\"/>\n",
                    from.0,
                    from.1,
                    to.0 - from.0,
                    to.1 - from.1,
                    BASE64_STANDARD.encode(png)
                ))
            }
            Backend::Png(_) => self.paint(canvas, from, to),
        }
    }
}

impl<C> Raster<C> {
    /// A PNG with the heat ramp as its palette; entry 0 is transparent.
    fn png(&self) -> Result<Vec<u8>, PaintError> {
        let size = (self.columns, self.cells.len() / self.columns.max(1));
        let palette = std::iter::once((0, 0, 0)).chain((0..HEAT_LEVELS).map(heat));
        let mut out = Vec::new();
        let mut encoder = encoder(&mut out, size, png::ColorType::Indexed)?;
        encoder.set_compression(png::Compression::High);
        // Few distinct values next to each other: prediction only makes them many.
        encoder.set_filter(png::Filter::NoFilter);
        encoder.set_palette(palette.flat_map(|(red, green, blue)| [red, green, blue]).collect::<Vec<u8>>());
        encoder.set_trns(vec![0]);
        encoder.write_header()?.write_image_data(&self.cells)?;
        Ok(out)
    }

    fn paint(&self, canvas: &mut Canvas, from: Point, to: Point) -> Done {
        let between = |from: i32, to: i32, at: usize, of: usize| {
            let part = (i64::from(to) - i64::from(from)) * i64::try_from(at).unwrap_or(0);
            from + i32::try_from(part / i64::try_from(of).unwrap_or(1).max(1)).unwrap_or(0)
        };
        let rows = self.cells.len() / self.columns.max(1);
        let corner =
            |column: usize, row: usize| (between(from.0, to.0, column, self.columns), between(from.1, to.1, row, rows));
        for (row, cells) in self.cells.chunks(self.columns.max(1)).enumerate() {
            let mut column = 0;
            for run in cells.chunk_by(|a, b| a == b) {
                if let Some(level) = run[0].checked_sub(1) {
                    let (red, green, blue) = heat(level);
                    let ends = (corner(column, row), corner(column + run.len(), row + 1));
                    canvas.draw_rect(ends.0, ends.1, &RGBColor(red, green, blue), true)?;
                }
                column += run.len();
            }
        }
        Ok(())
    }
}

/// An `<svg>` element without a size of its own, for a page that styles it.
pub(crate) fn svg_element(figure: &Figure) -> Result<String, PaintError> {
    svg(figure, "", 0, true)
}

/// An SVG file: it follows the reader's light or dark preference by itself.
pub(crate) fn svg_file(figure: &Figure) -> Result<String, PaintError> {
    let style = format!(
        "<style>svg{{{}background:var(--ink-ground);font-family:system-ui,sans-serif}}\n\
         @media (prefers-color-scheme:dark){{svg{{{}}}}}\n{}text{{font-family:inherit}}</style>\n",
        theme::variables(false),
        theme::variables(true),
        theme::rules("svg"),
    );
    svg(figure, &style, MARGIN, false)
}

fn svg(figure: &Figure, style: &str, margin: i32, live: bool) -> Result<String, PaintError> {
    let (width, height) = (figure.width + 2 * margin, figure.height + 2 * margin);
    let mut drawn = String::new();
    let backend = Backend::Svg(SVGBackend::with_string(&mut drawn, (width.unsigned_abs(), height.unsigned_abs())));
    let inserts = draw(figure, backend, margin, live)?;
    // The backend's own opening tag fixes the size in pixels; here the page decides.
    let shapes = drawn.split_once('>').map_or("", |(_, rest)| rest);
    let label = super::track::escaped(&figure.label);
    Ok(format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" \
         aria-label=\"{label}\">{style}\n{}",
        with_inserts(shapes.trim_start(), &inserts)
    ))
}

/// Draws with a margin; returns the inserts.
fn draw(figure: &Figure, backend: Backend, margin: i32, live: bool) -> Result<Vec<String>, PaintError> {
    register_fonts()?;
    let canvas = Rc::new(RefCell::new(Canvas { backend, live, inserts: Vec::new() }));
    (figure.draw)(&DrawingArea::from(&canvas).margin(margin, margin, margin, margin))?;
    let mut canvas = canvas.borrow_mut();
    canvas.present().map_err(|error| PaintError(error.to_string()))?;
    Ok(std::mem::take(&mut canvas.inserts))
}

/// A PNG file on light ground: drawn twice as large and averaged, as the backend does not smooth edges.
pub(crate) fn png_file(figure: &Figure) -> Result<Vec<u8>, PaintError> {
    let side = |length: i32| (length + 2 * MARGIN).unsigned_abs().next_multiple_of(2);
    let size = (side(figure.width), side(figure.height));
    let (width, height) = (usize::try_from(size.0)?, usize::try_from(size.1)?);
    let mut pixels = vec![255; 3 * width * height];
    draw(figure, Backend::Png(BitMapBackend::with_buffer(&mut pixels, size)), MARGIN, false)?;
    let averaged: Vec<u8> = pixels.chunks_exact(6 * width).flat_map(average).collect();
    let mut out = Vec::new();
    encoder(&mut out, (width / 2, height / 2), png::ColorType::Rgb)?.write_header()?.write_image_data(&averaged)?;
    Ok(out)
}

/// The means of the squares of four pixels in two rows.
fn average(rows: &[u8]) -> impl Iterator<Item = u8> {
    let (upper, lower) = rows.split_at(rows.len() / 2);
    let mean = |at: usize| {
        let four = [upper[at], upper[at + 3], lower[at], lower[at + 3]];
        u8::try_from(four.iter().map(|value| u32::from(*value)).sum::<u32>() / 4).unwrap_or(u8::MAX)
    };
    (0..upper.len()).step_by(6).flat_map(move |at| [mean(at), mean(at + 1), mean(at + 2)])
}

fn encoder(
    out: &mut Vec<u8>,
    (width, height): (usize, usize),
    color: png::ColorType,
) -> Result<png::Encoder<'_, &mut Vec<u8>>, PaintError> {
    let mut encoder = png::Encoder::new(out, u32::try_from(width)?, u32::try_from(height)?);
    encoder.set_color(color);
    encoder.set_depth(png::BitDepth::Eight);
    Ok(encoder)
}

/// Makes the embedded fonts known to plotters, which keeps them for the life of the process.
fn register_fonts() -> Drawn {
    static DONE: OnceLock<bool> = OnceLock::new();
    let ok = DONE.get_or_init(|| {
        register_font("sans-serif", FontStyle::Normal, ttf_noto_sans::REGULAR).is_ok()
            && register_font("sans-serif", FontStyle::Bold, ttf_noto_sans::BOLD).is_ok()
    });
    if *ok { Ok(()) } else { Err(PaintError("the embedded font is damaged".into())) }
}
