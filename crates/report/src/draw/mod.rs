//! Drawings, made with plotters: a view says what lies where once, and SVG and PNG follow from it.
//!
//! A drawing uses the *role* of a colour ([`Ink`]); [`theme`] has the colours of each role on light and on dark ground.
//! Lengths are quarters of a pixel at the intended size, as plotters places things on integers.

pub(super) mod axis;
pub(super) mod canvas;
pub(super) mod theme;
mod track;

use plotters::chart::{ChartBuilder, ChartContext, LabelAreaPosition};
use plotters::coord::Shift;
use plotters::coord::cartesian::Cartesian2d;
use plotters::drawing::{DrawingArea, DrawingAreaErrorKind};
use plotters::element::{Circle, DashedPathElement, PathElement, Polygon, Rectangle};
use plotters::style::text_anchor::{HPos, Pos, VPos};
use plotters::style::{Color, IntoFont, ShapeStyle, TextStyle};

pub(super) use axis::Axis;
use canvas::Canvas;
pub(super) use canvas::{png_file, svg_element, svg_file};
pub(super) use theme::Ink;
use track::Group;
pub(super) use track::{Holds, Track, Units, stepped, steps, unbroken};

/// A length in pixels of the intended size.
pub(super) const fn px(length: i32) -> i32 {
    4 * length
}

/// A drawing that failed; with memory as the target it does not happen.
#[derive(Debug, thiserror::Error)]
#[error("cannot draw: {0}")]
pub struct PaintError(String);

impl From<DrawingAreaErrorKind<PaintError>> for PaintError {
    fn from(error: DrawingAreaErrorKind<PaintError>) -> Self {
        Self(error.to_string())
    }
}

impl From<png::EncodingError> for PaintError {
    fn from(error: png::EncodingError) -> Self {
        Self(error.to_string())
    }
}

impl From<std::num::TryFromIntError> for PaintError {
    fn from(error: std::num::TryFromIntError) -> Self {
        Self(error.to_string())
    }
}

pub(super) type Drawn<T = ()> = Result<T, PaintError>;
pub(super) type Area<'a> = DrawingArea<Canvas<'a>, Shift>;
type Chart<'a, 'b> = ChartContext<'a, Canvas<'b>, Cartesian2d<Axis, Axis>>;

/// For how wide a page a drawing is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// A screen or a sheet.
    Wide,
    /// A phone.
    Narrow,
}

impl Page {
    pub(super) fn width(self) -> i32 {
        self.of(px(820), px(328))
    }

    pub(super) fn of<T>(self, wide: T, narrow: T) -> T {
        match self {
            Self::Wide => wide,
            Self::Narrow => narrow,
        }
    }
}

/// A drawing.
pub(super) struct Figure<'a> {
    pub width: i32,
    pub height: i32,
    /// What it shows, for those who cannot see it.
    pub label: String,
    pub draw: Box<dyn Fn(&Area) -> Drawn + 'a>,
}

impl<'a> Figure<'a> {
    /// A drawing as wide as the page.
    pub(super) fn new(page: Page, height: i32, label: &str, draw: impl Fn(&Area) -> Drawn + 'a) -> Self {
        Self { width: page.width(), height, label: label.to_owned(), draw: Box::new(draw) }
    }

    /// Drawings one below the other with a title.
    pub(super) fn sheet(title: &'a str, under: &'a str, figures: Vec<Self>) -> Self {
        const HEAD: i32 = px(58);
        const GAP: i32 = px(22);
        let labels: Vec<&str> = figures.iter().map(|figure| figure.label.as_str()).collect();
        let height = HEAD + figures.iter().map(|figure| figure.height + GAP).sum::<i32>() - GAP;
        Self::new(Page::Wide, height, &labels.join(" "), move |area| {
            let (head, mut rest) = area.split_vertically(HEAD);
            head.draw_text(&shorten(title, 76), &text(Ink::Text, 17, true), (0, px(14)))?;
            head.draw_text(&shorten(under, 118), &text(Ink::Muted, 12, false), (0, px(36)))?;
            for figure in &figures {
                let (own, below) = rest.split_vertically(figure.height);
                (figure.draw)(&own)?;
                rest = below.split_vertically(GAP).1;
            }
            Ok(())
        })
    }
}

/// Style of a text that is centred vertically. The factor is between what the two backends take for one em.
pub(super) fn text(ink: Ink, size: i32, bold: bool) -> TextStyle<'static> {
    let weight = if bold { plotters::style::FontStyle::Bold } else { plotters::style::FontStyle::Normal };
    let font = ("sans-serif", f64::from(px(size)) * 1.3, weight).into_font();
    font.color(&ink.rgb()).pos(Pos::new(HPos::Left, VPos::Center))
}

/// The same, aligned to its right or to its middle.
pub(super) fn aligned(ink: Ink, position: HPos) -> TextStyle<'static> {
    text(ink, 12, false).pos(Pos::new(position, VPos::Center))
}

/// A stroke; its width in quarters of a pixel.
pub(super) fn stroke(ink: Ink, width: u32) -> ShapeStyle {
    ink.rgb().stroke_width(width)
}

/// A heading above the rest of an area.
pub(super) fn heading<'a>(area: &Area<'a>, name: &str) -> Drawn<Area<'a>> {
    let (head, rest) = area.split_vertically(px(26));
    head.draw_text(name, &text(Ink::Text, 12, true), (0, px(12)))?;
    Ok(rest)
}

/// Squares of colour with their names above the rest of an area, in as many lines as they need.
pub(super) fn key<'a>(area: &Area<'a>, items: &[(Ink, &str)]) -> Drawn<Area<'a>> {
    keys(area, items.iter().map(|(ink, name)| (*ink, *name, false)))
}

/// The same; the colour of a dashed line is cut in two.
pub(super) fn keys<'a, 'n>(area: &Area<'a>, items: impl IntoIterator<Item = (Ink, &'n str, bool)>) -> Drawn<Area<'a>> {
    let width = i32::try_from(area.dim_in_pixel().0)?;
    let (mut x, mut y) = (0, px(8));
    for (ink, name, dashed) in items {
        let style = text(Ink::Text, 12, false);
        // A page's font may be wider than the embedded one: DejaVu Sans by three tenths.
        let wide = px(26) + i32::try_from(area.estimate_text_size(name, &style)?.0)? * 13 / 10;
        if x + wide > width && x > 0 {
            (x, y) = (0, y + px(18));
        }
        let parts: &[(i32, i32)] = if dashed { &[(0, px(4)), (px(6), px(10))] } else { &[(0, px(10))] };
        for (from, to) in parts {
            area.draw(&Rectangle::new([(x + from, y - px(5)), (x + to, y + px(5))], ink.rgb().filled()))?;
        }
        area.draw_text(name, &style, (x + px(15), y))?;
        x += wide;
    }
    Ok(area.split_vertically(y + px(18)).1)
}

/// Where the labels of a chart stand and which lines of its ticks are drawn across it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Layout {
    pub left: i32,
    pub right: i32,
    /// Height of the labels below.
    pub bottom: i32,
    /// Whether there is an axis at the left, and lines across the chart from the ticks.
    pub grid: bool,
    /// Those lines go upward from the ticks below, instead of to the right from those at the left, which name rows.
    pub upright: bool,
    pub x_name: &'static str,
}

impl Default for Layout {
    fn default() -> Self {
        Self { left: px(64), right: px(18), bottom: px(26), grid: true, upright: false, x_name: "" }
    }
}

/// Draws the axis below, or that at the left, each with its lines across the chart.
fn mesh(chart: &mut Chart, layout: Layout, below: bool) -> Drawn {
    let mut mesh = chart.configure_mesh();
    mesh.axis_style(stroke(Ink::Axis, 4)).bold_line_style(stroke(Ink::Grid, 4)).max_light_lines(0);
    mesh.label_style(text(Ink::Muted, 12, false)).set_all_tick_mark_size(px(4));
    if below {
        mesh.disable_y_axis().disable_y_mesh();
    } else {
        mesh.disable_x_axis().disable_x_mesh();
    }
    if layout.upright {
        mesh.disable_y_mesh().y_label_style(text(Ink::Text, 12, false));
    } else {
        mesh.disable_x_mesh();
    }
    if below && !layout.x_name.is_empty() {
        mesh.x_desc(layout.x_name).axis_desc_style(text(Ink::Muted, 12, false));
    }
    Ok(mesh.draw()?)
}

/// A chart with its axes drawn.
pub(super) struct Plot<'a, 'b> {
    chart: Chart<'a, 'b>,
}

impl<'a, 'b> Plot<'a, 'b> {
    pub(super) fn new(area: &'a Area<'b>, [x, y]: [&Axis; 2], layout: Layout) -> Drawn<Self> {
        let mut chart = ChartBuilder::on(area)
            .margin_top(px(6))
            .margin_right(layout.right)
            .set_label_area_size(LabelAreaPosition::Left, layout.left)
            .set_label_area_size(LabelAreaPosition::Bottom, layout.bottom)
            .build_cartesian_2d(x.clone(), y.clone())?;
        if layout.grid {
            mesh(&mut chart, layout, false)?;
        }
        // A page's script moves what belongs to the axis below.
        let mut plot = Self { chart };
        plot.element(Group { svg: "<g class=\"x\">\n" })?;
        mesh(&mut plot.chart, layout, true)?;
        plot.element(Group { svg: "</g>\n" })?;
        Ok(plot)
    }

    /// A filled outline.
    pub(super) fn polygon(&mut self, points: Vec<(f64, f64)>, ink: Ink, opacity: f64) -> Drawn {
        self.chart.draw_series([Polygon::new(points, ink.rgb().mix(opacity))])?;
        Ok(())
    }

    /// What lies between two lines.
    pub(super) fn band(&mut self, mut upper: Vec<(f64, f64)>, lower: Vec<(f64, f64)>, fill: (Ink, f64)) -> Drawn {
        upper.extend(lower.into_iter().rev());
        self.polygon(upper, fill.0, fill.1)
    }

    /// Layers one upon the other over the same places.
    pub(super) fn stacked(&mut self, x: &[f64], layers: &[(Ink, Vec<f64>)], opacity: f64) -> Drawn {
        let at = |heights: &[f64]| x.iter().copied().zip(heights.iter().copied()).collect::<Vec<_>>();
        let mut below = vec![0.0; x.len()];
        for (ink, heights) in layers {
            let above: Vec<f64> = heights.iter().zip(&below).map(|(height, below)| below + height).collect();
            if above != below {
                self.band(at(&above), at(&below), (*ink, opacity))?;
            }
            below = above;
        }
        Ok(())
    }

    /// A line; its width in quarters of a pixel.
    pub(super) fn line(&mut self, points: Vec<(f64, f64)>, ink: Ink, width: u32) -> Drawn {
        self.chart.draw_series([PathElement::new(points, stroke(ink, width))])?;
        Ok(())
    }

    /// Lines across what is drawn so far, from the ticks at the left above its lower edge.
    pub(super) fn rules(&mut self, y: &Axis) -> Drawn {
        let (x, lowest) = (self.chart.x_range(), self.chart.y_range().start);
        for (at, _) in y.ticks.iter().filter(|(at, _)| *at > lowest) {
            self.line(vec![(x.start, *at), (x.end, *at)], Ink::Grid, 4)?;
        }
        Ok(())
    }

    pub(super) fn dashed(&mut self, points: Vec<(f64, f64)>, ink: Ink, width: u32) -> Drawn {
        self.chart.draw_series([DashedPathElement::new(points, px(5), px(4), stroke(ink, width))])?;
        Ok(())
    }

    pub(super) fn dots(&mut self, points: impl IntoIterator<Item = (f64, f64)>, ink: Ink, radius: i32) -> Drawn {
        self.chart.draw_series(points.into_iter().map(|point| Circle::new(point, radius, ink.rgb().filled())))?;
        Ok(())
    }

    /// Anything else in the chart's coordinates.
    pub(super) fn element<E>(&mut self, element: E) -> Drawn
    where
        for<'e> &'e E: plotters::element::PointCollection<'e, (f64, f64)>,
        E: for<'e> plotters::element::Drawable<Canvas<'b>>,
    {
        self.chart.plotting_area().draw(&element)?;
        Ok(())
    }

    /// A text beside a point of the chart.
    pub(super) fn text(&self, name: &str, style: &TextStyle, point: (f64, f64), (right, down): (i32, i32)) -> Drawn {
        let plain = self.chart.plotting_area().strip_coord_spec();
        let (left, top) = plain.get_base_pixel();
        let (x_range, y_range) = plain.get_pixel_range();
        let (x, y) = self.chart.backend_coord(&point);
        let (x, y) = (x.clamp(x_range.start, x_range.end), y.clamp(y_range.start, y_range.end));
        plain.draw_text(name, style, (x - left + right, y - top + down))?;
        Ok(())
    }
}

/// Colours of lines that are compared, in their order, and whether the line is dashed, which distinguishes a colour from its repetition.
pub(super) fn line_style(at: usize) -> (Ink, bool) {
    let inks = [Ink::Line0, Ink::Line1, Ink::Line2, Ink::Line3, Ink::Line4, Ink::Line5, Ink::Line6];
    (inks[at % inks.len()], at / inks.len() % 2 == 1)
}

/// A chart of lines under a title, with a key. Tracks that are not drawn are not in the key.
pub(super) fn lines<'a>(
    page: Page,
    (title, x_name): (&'a str, &'static str),
    ([x, y], units): ([Axis; 2], Units),
    tracks: Vec<Track>,
) -> Figure<'a> {
    let listed: Vec<&str> = tracks.iter().map(|track| track.name.as_str()).collect();
    let label = format!("{title}, a line for each of {}.", listed.join(", "));
    let bottom = if x_name.is_empty() { Layout::default().bottom } else { px(44) };
    let layout = Layout { bottom, x_name, ..Layout::default() };
    // Names that need further lines of the key.
    let more = px(18) * i32::try_from(tracks.len() / page.of(6, 2)).unwrap_or(0);
    Figure::new(page, px(234) + bottom + more, &label, move |area| {
        let named = tracks.iter().filter(|track| !track.name.is_empty());
        let rest = keys(&heading(area, title)?, named.map(|of| (of.ink, of.name.as_str(), of.dashed)))?;
        let mut plot = Plot::new(&rest, [&x, &y], layout)?;
        plot.live(units, (&tracks, &[]), |plot| plot.tracks(&tracks))
    })
}

/// A text cut in its middle to so many characters, as the ends of a path identify it.
pub(super) fn shorten(text: &str, most: usize) -> String {
    let chars: Vec<char> = text.chars().collect();
    if chars.len() <= most {
        return text.to_owned();
    }
    let (head, tail) = (most / 3, most - most / 3 - 1);
    chars[..head].iter().chain(&['…']).chain(&chars[chars.len() - tail..]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_keeps_its_ends() {
        let short = shorten("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 18);
        assert!(short.starts_with("/usr") && short.ends_with("so.3") && short.chars().count() == 18, "{short}");
        assert_eq!(shorten("[heap]", 18), "[heap]");
    }
}
