//! Drawing: a view says what lies where, once; SVG and PNG follow from it.
//!
//! A view fills a [`Scene`] with shapes in drawing units and in the *role* of a colour, never a colour itself.
//! [`paint`] puts a scene on a plotters backend; [`theme`] knows what each role looks like on light and on dark ground.

pub(super) mod axis;
pub(super) mod image;
pub(super) mod paint;
pub(super) mod theme;

pub(super) use theme::Ink;

/// A place in drawing units: right, then down.
pub(super) type Point = (f64, f64);

/// Where a text lies relative to its point; vertically it is centred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// A shape.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Shape {
    Line { points: Vec<Point>, ink: Ink, width: f64 },
    Area { points: Vec<Point>, ink: Ink, opacity: f64 },
    Text { at: Point, text: String, ink: Ink, size: f64, anchor: Anchor, bold: bool },
}

/// For how wide a page a drawing is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Page {
    /// A screen or a sheet: labels beside the lines they name.
    Wide,
    /// A phone: labels in a key above the chart.
    Narrow,
}

impl Page {
    /// Width in drawing units, which are pixels at the intended size.
    pub(super) fn width(self) -> f64 {
        match self {
            Self::Wide => 820.0,
            Self::Narrow => 328.0,
        }
    }

    /// Room right of a chart for labels.
    pub(super) fn label_room(self) -> f64 {
        match self {
            Self::Wide => 138.0,
            Self::Narrow => 6.0,
        }
    }
}

/// A raster of palette entries stretched over a rectangle; 0 shows the ground.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Raster {
    pub at: Point,
    pub size: Point,
    pub columns: usize,
    /// Row by row from the top, `columns` entries each: 0 = nothing, n = level n - 1 of the heat ramp.
    pub cells: Vec<u8>,
}

/// Everything that is drawn, below to above: rasters, then shapes in their order.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Scene {
    pub width: f64,
    pub height: f64,
    /// What it shows, for those who cannot see it.
    pub label: String,
    pub rasters: Vec<Raster>,
    pub shapes: Vec<Shape>,
}

/// Usual size of text in drawing units.
pub(super) const TEXT: f64 = 12.0;

impl Scene {
    pub(super) fn new(page: Page, label: impl Into<String>) -> Self {
        Self { width: page.width(), label: label.into(), ..Self::default() }
    }

    pub(super) fn line(&mut self, points: Vec<Point>, ink: Ink, width: f64) {
        if points.len() > 1 {
            self.shapes.push(Shape::Line { points, ink, width });
        }
    }

    /// A dashed line: the backends know no dashes, so each dash is a line.
    pub(super) fn dashed(&mut self, points: &[Point], ink: Ink, width: f64) {
        for dash in dashes(points, 5.0, 4.0) {
            self.line(dash, ink, width);
        }
    }

    pub(super) fn area(&mut self, points: Vec<Point>, ink: Ink, opacity: f64) {
        if points.len() > 2 {
            self.shapes.push(Shape::Area { points, ink, opacity });
        }
    }

    pub(super) fn rect(&mut self, (x, y): Point, (w, h): Point, ink: Ink, opacity: f64) {
        self.area(vec![(x, y), (x + w, y), (x + w, y + h), (x, y + h)], ink, opacity);
    }

    pub(super) fn text(&mut self, at: Point, text: impl Into<String>, ink: Ink, anchor: Anchor) {
        self.shapes.push(Shape::Text { at, text: text.into(), ink, size: TEXT, anchor, bold: false });
    }

    pub(super) fn bold(&mut self, at: Point, text: impl Into<String>, ink: Ink, anchor: Anchor) {
        self.shapes.push(Shape::Text { at, text: text.into(), ink, size: TEXT, anchor, bold: true });
    }

    /// Squares of colour with their names, in as many lines as they need; returns the height used.
    pub(super) fn key(&mut self, (x, y): Point, right: f64, items: &[(Ink, &str)]) -> f64 {
        let (mut at_x, mut at_y) = (x, y + 8.0);
        for (ink, name) in items {
            let width = 16.0 + text_width(name) + 14.0;
            if at_x + width > right && at_x > x {
                (at_x, at_y) = (x, at_y + 18.0);
            }
            self.rect((at_x, at_y - 5.0), (10.0, 10.0), *ink, 1.0);
            self.text((at_x + 15.0, at_y), *name, Ink::Text, Anchor::Start);
            at_x += width;
        }
        at_y - y + 16.0
    }

    /// Names beside the right ends of what they name, moved apart where they would overlap.
    pub(super) fn end_labels(&mut self, x: f64, (top, bottom): (f64, f64), mut labels: Vec<(f64, Ink, String)>) {
        labels.sort_by(|a, b| a.0.total_cmp(&b.0));
        let gap = 15.0;
        let mut places: Vec<f64> = Vec::new();
        for (y, _, _) in &labels {
            let free = places.last().map_or(top + 4.0, |last| last + gap);
            places.push(y.max(free));
        }
        let mut limit = bottom - 4.0;
        for place in places.iter_mut().rev() {
            *place = place.min(limit);
            limit = *place - gap;
        }
        for ((_, ink, name), y) in labels.into_iter().zip(places) {
            // The colour beside the word, not of it: pale colours make unreadable words.
            self.rect((x, y - 5.0), (10.0, 10.0), ink, 1.0);
            self.text((x + 15.0, y), name, Ink::Text, Anchor::Start);
        }
    }

    /// Puts another scene below this one.
    pub(super) fn stack(&mut self, below: Self, gap: f64) {
        let offset = if self.height > 0.0 { self.height + gap } else { 0.0 };
        self.width = self.width.max(below.width);
        self.height = offset + below.height;
        self.label = [self.label.as_str(), below.label.as_str()]
            .iter()
            .filter(|l| !l.is_empty())
            .copied()
            .collect::<Vec<_>>()
            .join(" ");
        let down = |(x, y): Point| (x, y + offset);
        self.rasters.extend(below.rasters.into_iter().map(|raster| Raster { at: down(raster.at), ..raster }));
        self.shapes.extend(below.shapes.into_iter().map(|shape| match shape {
            Shape::Line { points, ink, width } => {
                Shape::Line { points: points.into_iter().map(down).collect(), ink, width }
            }
            Shape::Area { points, ink, opacity } => {
                Shape::Area { points: points.into_iter().map(down).collect(), ink, opacity }
            }
            Shape::Text { at, text, ink, size, anchor, bold } => {
                Shape::Text { at: down(at), text, ink, size, anchor, bold }
            }
        }));
    }

    /// The scene under a title, for a file that stands alone.
    pub(super) fn titled(self, title: &str, under: &str) -> Self {
        let at = |y| (2.0, y);
        let fit = |text: &str, size: f64| shorten(text, (self.width - 4.0) * TEXT / size);
        let head = Self {
            width: self.width,
            height: 50.0,
            shapes: vec![
                Shape::Text {
                    at: at(14.0),
                    text: fit(title, 17.0),
                    ink: Ink::Text,
                    size: 17.0,
                    anchor: Anchor::Start,
                    bold: true,
                },
                Shape::Text {
                    at: at(36.0),
                    text: fit(under, TEXT),
                    ink: Ink::Muted,
                    size: TEXT,
                    anchor: Anchor::Start,
                    bold: false,
                },
            ],
            ..Self::default()
        };
        let mut whole = head;
        whole.stack(self, 8.0);
        whole
    }
}

/// Width a text will take at the usual size, near enough to place things by: the viewer chooses the font.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars()
        .map(|c| match c {
            'i' | 'l' | 'j' | 't' | 'f' | '.' | ',' | ':' | '\'' | '|' | ' ' | '(' | ')' | '[' | ']' | '/' => 3.9,
            'm' | 'w' | 'M' | 'W' | '%' | '@' => 10.0,
            'A'..='Z' => 7.8,
            _ => 6.8,
        })
        .sum()
}

/// A text cut in its middle to fit a width, as the ends of a path tell most.
pub(super) fn shorten(text: &str, width: f64) -> String {
    if text_width(text) <= width {
        return text.to_owned();
    }
    let chars: Vec<char> = text.chars().collect();
    for kept in (2..chars.len()).rev() {
        let (head, tail) = (kept / 3, kept - kept / 3);
        let short: String =
            chars[..head].iter().chain(['…'].iter()).chain(chars[chars.len() - tail..].iter()).collect();
        if text_width(&short) <= width {
            return short;
        }
    }
    "…".to_owned()
}

/// Cuts a line into dashes.
fn dashes(points: &[Point], on: f64, off: f64) -> Vec<Vec<Point>> {
    let mut out = Vec::new();
    let mut dash = Vec::new();
    let (mut drawing, mut left) = (true, on);
    for pair in points.windows(2) {
        let ((mut x, mut y), (to_x, to_y)) = (pair[0], pair[1]);
        if drawing && dash.is_empty() {
            dash.push((x, y));
        }
        loop {
            let rest = (to_x - x).hypot(to_y - y);
            if rest < left {
                left -= rest;
                if drawing {
                    dash.push((to_x, to_y));
                }
                break;
            }
            (x, y) = (x + (to_x - x) * left / rest, y + (to_y - y) * left / rest);
            if drawing {
                dash.push((x, y));
                out.push(std::mem::take(&mut dash));
            } else {
                dash.push((x, y));
            }
            drawing = !drawing;
            left = if drawing { on } else { off };
        }
    }
    if dash.len() > 1 {
        out.push(dash);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dashes_cover_their_share_of_the_line() {
        let drawn: f64 = dashes(&[(0.0, 0.0), (50.0, 0.0), (90.0, 0.0)], 5.0, 4.0)
            .iter()
            .flat_map(|dash| dash.windows(2).map(|pair| pair[1].0 - pair[0].0).collect::<Vec<_>>())
            .sum();
        assert!((drawn - 50.0).abs() < 1e-9, "{drawn}");
    }

    #[test]
    fn labels_are_moved_apart_and_stay_inside() {
        let mut scene = Scene::new(Page::Wide, "");
        let labels = [50.0, 51.0, 52.0, 99.0].map(|y| (y, Ink::Text, "x".to_owned()));
        scene.end_labels(0.0, (0.0, 100.0), labels.to_vec());
        let ys: Vec<f64> = scene
            .shapes
            .iter()
            .filter_map(|s| if let Shape::Text { at, .. } = s { Some(at.1) } else { None })
            .collect();
        assert!(ys.windows(2).all(|pair| pair[1] - pair[0] >= 15.0 - 1e-9), "{ys:?}");
        assert!(ys.iter().all(|y| (0.0..=100.0).contains(y)), "{ys:?}");
    }

    #[test]
    fn a_path_keeps_its_ends() {
        let short = shorten("/usr/lib/x86_64-linux-gnu/libcrypto.so.3", 120.0);
        assert!(short.starts_with("/usr") && short.ends_with("so.3") && text_width(&short) <= 120.0, "{short}");
    }
}
