//! Scenes onto plotters backends: SVG and PNG.

use std::sync::OnceLock;

use plotters::backend::DrawingBackend;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, FontDesc, FontFamily, FontStyle, RGBColor, ShapeStyle, TextStyle, register_font};

use super::image::{base64, palette_png, rgb_png};
use super::theme::{self, HEAT_LEVELS, Rgb, heat, rgb};
use super::{Anchor, Point, Scene, Shape};

/// Backends place things on whole units: this many to a drawing unit keep curves smooth.
const SVG_SCALE: f64 = 4.0;

/// Pixels of a PNG to a drawing unit, and how many are averaged into one along each side.
const PNG_SCALE: u32 = 2;
const PNG_AVERAGED: u32 = 2;

/// Space around the drawing in a file, in drawing units.
const MARGIN: f64 = 16.0;

/// plotters gives a font's height where SVG takes its em.
const EM: f64 = 1.24;

/// Noto Sans' line is so much taller than its em, which is what the rasteriser is told.
const NOTO_LINE: f64 = 1.36;

/// A drawing that failed to be written; with memory as the target it does not happen.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw: {0}")]
pub(crate) struct PaintError(String);

/// Places drawing units on a backend.
#[derive(Clone, Copy)]
struct Grid {
    scale: f64,
    margin: f64,
    /// What the backend takes for the size of a text of one unit.
    em: f64,
    /// By what part of its size a text must be lowered to be centred.
    down: f64,
}

impl Grid {
    fn length(self, units: f64) -> u32 {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, far below 2^32")]
        let length = (units * self.scale).round().max(0.0) as u32;
        length
    }

    fn at(self, (x, y): Point) -> (i32, i32) {
        #[expect(clippy::cast_possible_truncation, reason = "saturates; drawings are thousands of units wide")]
        let place = |units: f64| ((units + self.margin) * self.scale).round() as i32;
        (place(x), place(y))
    }
}

fn paint<DB: DrawingBackend>(scene: &Scene, backend: &mut DB, grid: Grid) -> Result<(), PaintError> {
    for shape in &scene.shapes {
        let done = match shape {
            Shape::Line { points, ink, width } => {
                let style = stroke(rgb(ink.hex().0), 1.0, grid.length(*width).max(1));
                backend.draw_path(points.iter().map(|point| grid.at(*point)), &style)
            }
            Shape::Area { points, ink, opacity } => {
                let style = stroke(rgb(ink.hex().0), *opacity, 0);
                backend.fill_polygon(points.iter().map(|point| grid.at(*point)), &style)
            }
            Shape::Text { at, text, ink, size, anchor, bold } => {
                let style = if *bold { FontStyle::Bold } else { FontStyle::Normal };
                let (red, green, blue) = rgb(ink.hex().0);
                let color = RGBColor(red, green, blue);
                let horizontal = match anchor {
                    Anchor::Start => HPos::Left,
                    Anchor::Middle => HPos::Center,
                    Anchor::End => HPos::Right,
                };
                let font = FontDesc::new(FontFamily::SansSerif, size * grid.em * grid.scale, style);
                let style = TextStyle::from(font).color(&color).pos(Pos::new(horizontal, VPos::Center));
                backend.draw_text(text, &style, grid.at((at.0, at.1 + size * grid.down)))
            }
        };
        done.map_err(|error| PaintError(error.to_string()))?;
    }
    Ok(())
}

fn stroke((red, green, blue): Rgb, opacity: f64, width: u32) -> ShapeStyle {
    ShapeStyle { color: RGBColor(red, green, blue).mix(opacity), filled: true, stroke_width: width }
}

/// A scene as an `<svg>` element without a size of its own, for a page that styles it.
pub(crate) fn svg_element(scene: &Scene) -> Result<String, PaintError> {
    svg(scene, "", 0.0)
}

/// A scene as an SVG file: it follows the reader's light or dark preference by itself.
pub(crate) fn svg_file(scene: &Scene) -> Result<String, PaintError> {
    let style = format!(
        "<style>svg{{{}background:var(--ink-ground);font-family:system-ui,sans-serif}}\n\
         @media (prefers-color-scheme:dark){{svg{{{}}}}}\n{}text{{font-family:inherit}}</style>\n",
        theme::variables(false),
        theme::variables(true),
        theme::rules("svg"),
    );
    svg(scene, &style, MARGIN)
}

fn svg(scene: &Scene, style: &str, margin: f64) -> Result<String, PaintError> {
    use plotters::backend::SVGBackend;
    let grid = Grid { scale: SVG_SCALE, margin, em: EM, down: 0.0 };
    let (width, height) = (grid.length(scene.width + 2.0 * margin), grid.length(scene.height + 2.0 * margin));
    let mut drawn = String::new();
    {
        let mut backend = SVGBackend::with_string(&mut drawn, (width, height));
        paint(scene, &mut backend, grid)?;
        backend.present().map_err(|error| PaintError(error.to_string()))?;
    }
    // The backend's own opening tag fixes the size in pixels; here the page decides.
    let shapes = drawn.split_once('>').map_or("", |(_, rest)| rest);
    let mut out = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{}\">{style}\n",
        escape(&scene.label)
    );
    for raster in &scene.rasters {
        let png = palette_png(raster.columns, &raster.cells).ok_or_else(|| PaintError("image of odd size".into()))?;
        let ((x, y), w, h) = (grid.at(raster.at), grid.length(raster.size.0), grid.length(raster.size.1));
        out += &format!(
            "<image x=\"{x}\" y=\"{y}\" width=\"{w}\" height=\"{h}\" preserveAspectRatio=\"none\" \
             style=\"image-rendering:pixelated\" href=\"data:image/png;base64,{}\"/>\n",
            base64(&png)
        );
    }
    out += shapes.trim_start();
    Ok(out)
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

/// A scene as a PNG file on light ground. Drawn larger and averaged: the backend does not smooth edges.
pub(crate) fn png_file(scene: &Scene) -> Result<Vec<u8>, PaintError> {
    use plotters::backend::BitMapBackend;
    register_fonts()?;
    let scale = PNG_SCALE * PNG_AVERAGED;
    let grid = Grid { scale: f64::from(scale), margin: MARGIN, em: NOTO_LINE, down: 0.2 };
    let side = |units: f64| grid.length(units + 2.0 * MARGIN).next_multiple_of(PNG_AVERAGED);
    let (width, height) = (side(scene.width), side(scene.height));
    let mut pixels = vec![255; 3 * width as usize * height as usize];
    {
        let mut backend = BitMapBackend::with_buffer(&mut pixels, (width, height));
        for raster in &scene.rasters {
            paint_raster(raster, &mut backend, grid)?;
        }
        paint(scene, &mut backend, grid)?;
        backend.present().map_err(|error| PaintError(error.to_string()))?;
    }
    let (small, small_width) = (average(&pixels, width as usize), width / PNG_AVERAGED);
    rgb_png(small_width, height / PNG_AVERAGED, &small).ok_or_else(|| PaintError("image of odd size".into()))
}

fn paint_raster<DB: DrawingBackend>(raster: &super::Raster, backend: &mut DB, grid: Grid) -> Result<(), PaintError> {
    let rows = raster.cells.len() / raster.columns.max(1);
    #[expect(clippy::cast_precision_loss, reason = "some hundred rows and columns")]
    let corner = |column: usize, row: usize| {
        let x = raster.at.0 + raster.size.0 * column as f64 / raster.columns as f64;
        let y = raster.at.1 + raster.size.1 * row as f64 / rows as f64;
        grid.at((x, y))
    };
    for (row, cells) in raster.cells.chunks(raster.columns.max(1)).enumerate() {
        let mut column = 0;
        for run in cells.chunk_by(|a, b| a == b) {
            if let Some(level) = run[0].checked_sub(1) {
                let style = stroke(heat(level.min(HEAT_LEVELS)), 1.0, 0);
                let (from, to) = (corner(column, row), corner(column + run.len(), row + 1));
                backend.draw_rect(from, to, &style, true).map_err(|error| PaintError(error.to_string()))?;
            }
            column += run.len();
        }
    }
    Ok(())
}

/// Averages squares of pixels.
fn average(pixels: &[u8], width: usize) -> Vec<u8> {
    let by = PNG_AVERAGED as usize;
    let stride = 3 * width;
    let mut out = Vec::with_capacity(pixels.len() / (by * by));
    for rows in pixels.chunks_exact(stride * by) {
        for column in 0..width / by {
            for channel in 0..3 {
                let sum: u32 =
                    (0..by * by).map(|n| u32::from(rows[n / by * stride + 3 * (column * by + n % by) + channel])).sum();
                out.push(u8::try_from(sum / (PNG_AVERAGED * PNG_AVERAGED)).unwrap_or(u8::MAX));
            }
        }
    }
    out
}

/// Makes the embedded fonts known to plotters, which keeps them for the whole process.
fn register_fonts() -> Result<(), PaintError> {
    static DONE: OnceLock<bool> = OnceLock::new();
    let ok = DONE.get_or_init(|| {
        register_font("sans-serif", FontStyle::Normal, ttf_noto_sans::REGULAR).is_ok()
            && register_font("sans-serif", FontStyle::Bold, ttf_noto_sans::BOLD).is_ok()
    });
    if *ok { Ok(()) } else { Err(PaintError("the embedded font is damaged".into())) }
}
