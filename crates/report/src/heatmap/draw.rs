//! Drawing heatmaps: time to the right, addresses upward, colour for the access rate.

use lowtide_model::units::human_bytes;

use super::super::draw::axis::{Frame, MARKS, time_ticks};
use super::super::draw::theme::HEAT_LEVELS;
use super::super::draw::{Anchor, Ink, Page, Raster, Scene, shorten, text_width};
use super::super::regions::file_name;
use super::super::text::capital;
use super::take::Panel;

/// Height of the largest process' panel and of the others.
const HEIGHTS: [f64; 2] = [330.0, 110.0];

/// Height of a cut in the address space.
const CUT: f64 = 9.0;

/// The palette entry of a rate; 0 is the ground.
fn entry(rate: Option<f32>) -> u8 {
    rate.map_or(0, |rate| {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "in 0..=1 times a small number")]
        let level = (rate.clamp(0.0, 1.0) * f32::from(HEAT_LEVELS - 1)).round() as u8;
        level + 1
    })
}

/// One scene for each process.
pub(super) fn scenes(panels: &[Panel], page: Page) -> Vec<Scene> {
    panels.iter().enumerate().map(|(at, panel)| scene(panel, at == 0, page)).collect()
}

fn scene(panel: &Panel, first: bool, page: Page) -> Scene {
    let title = if panel.pid == 0 { "physical addresses".to_owned() } else { format!("process {}", panel.pid) };
    let mut scene = Scene::new(page, format!("Access rate by address and time, {title}."));
    scene.bold((0.0, 9.0), capital(&title), Ink::Text, Anchor::Start);
    if first {
        ramp(&mut scene, page);
    }
    let (left, room) = if page == Page::Wide { (104.0, 168.0) } else { (2.0, 104.0) };
    let height = HEIGHTS[usize::from(!first)];
    let width = scene.width - left - room;
    let top = 30.0;
    let sections = &panel.layout.sections;
    #[expect(clippy::cast_precision_loss, reason = "some hundred rows")]
    let (cuts, rows) = (CUT * (sections.len().saturating_sub(1)) as f64, panel.layout.rows.max(1) as f64);
    let unit = ((height - cuts) / rows).max(0.5);
    let mut bottom = top + unit * rows + cuts;
    let frame = Frame { left, top, width, height: bottom - top, x: (panel.from_s, panel.to_s), y: (0.0, 1.0) };
    let mut labels = Vec::new();
    let mut addresses: Vec<f64> = Vec::new();
    for (at, section) in sections.iter().enumerate() {
        #[expect(clippy::cast_precision_loss, reason = "some hundred rows")]
        let tall = unit * section.rows as f64;
        let upper = bottom - tall;
        scene.rasters.push(raster(panel, at, (left, upper), (width, tall)));
        for (y, name, bytes) in names(panel, at, (upper, tall)) {
            let name = if page == Page::Wide { label(panel, name, bytes) } else { plain(name) };
            labels.push((y, Ink::Muted, shorten(&name, room - 12.0)));
        }
        // Addresses only where there is room for them.
        if page == Page::Wide && addresses.iter().all(|y| (y - bottom).abs() > 13.0) {
            scene.text((left - 8.0, bottom - 4.0), format!("{:#x}", section.start), Ink::Muted, Anchor::End);
            addresses.push(bottom);
        }
        bottom = upper;
        if at + 1 < sections.len() {
            cut(&mut scene, (left, bottom - CUT), width);
            bottom -= CUT;
        }
    }
    plain_labels(&mut scene, frame.right() + 9.0, (frame.top - 4.0, frame.bottom() + 4.0), labels);
    frame.marks(&mut scene, &time_ticks(panel.to_s, if page == Page::Wide { 8 } else { 3 }));
    scene.height = frame.bottom() + MARKS;
    scene
}

fn raster(panel: &Panel, section: usize, at: (f64, f64), size: (f64, f64)) -> Raster {
    let section = &panel.layout.sections[section];
    let rows = (section.first_row..section.first_row + section.rows).rev();
    let cells = rows.flat_map(|row| (0..panel.columns).map(move |column| entry(panel.cell(row, column)))).collect();
    Raster { at, size, columns: panel.columns, cells }
}

/// Where the address space was cut: two slanted strokes, as on a broken axis.
fn cut(scene: &mut Scene, (x, y): (f64, f64), width: f64) {
    let middle = y + CUT / 2.0;
    for x in [x, x + width - 9.0] {
        scene.line(vec![(x, middle + 3.0), (x + 4.0, middle - 3.0)], Ink::Muted, 1.0);
        scene.line(vec![(x + 5.0, middle + 3.0), (x + 9.0, middle - 3.0)], Ink::Muted, 1.0);
    }
}

/// Names of the mappings of a section that are tall enough to be seen, or of its largest.
fn names(panel: &Panel, section: usize, (upper, tall): (f64, f64)) -> Vec<(f64, &str, u64)> {
    let section = &panel.layout.sections[section];
    #[expect(clippy::cast_precision_loss, reason = "places in a drawing")]
    let share = |bytes: u64| bytes as f64 / (section.end - section.start) as f64;
    let inside = panel.names.iter().filter(|(start, _, _)| (section.start..section.end).contains(start));
    inside
        .enumerate()
        .filter(|(at, (_, bytes, _))| *at == 0 || (panel.sized && *at < 4 && share(*bytes) * tall >= 14.0))
        .map(|(_, (start, bytes, name))| {
            let middle = share(start - section.start) + share(*bytes) / 2.0;
            (upper + tall * (1.0 - middle), name.as_str(), *bytes)
        })
        .collect()
}

/// A mapping's name and, where it is known, its size.
pub(super) fn label(panel: &Panel, name: &str, bytes: u64) -> String {
    if !panel.sized {
        return plain(name);
    }
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let size = human_bytes(bytes as f64);
    format!("{}, {size}", plain(name))
}

fn plain(name: &str) -> String {
    if name.is_empty() { "nameless".to_owned() } else { file_name(name) }
}

/// Labels at their rows, moved apart, the topmost given up where there is no room for all.
fn plain_labels(scene: &mut Scene, x: f64, (top, bottom): (f64, f64), mut labels: Vec<(f64, Ink, String)>) {
    let gap = 14.0;
    labels.sort_by(|a, b| b.0.total_cmp(&a.0));
    let mut limit = bottom - 4.0;
    for (y, ink, name) in labels {
        let y = y.min(limit);
        if y < top {
            break;
        }
        scene.text((x, y), name, ink, Anchor::Start);
        limit = y - gap;
    }
}

/// The scale of colours.
fn ramp(scene: &mut Scene, page: Page) {
    let right = scene.width;
    let width = if page == Page::Wide { 120.0 } else { 70.0 };
    let (to, from) = ("100 %", if page == Page::Wide { "accessed in 0 %" } else { "0 %" });
    let x = right - text_width(to) - 6.0 - width;
    scene.text((right, 9.0), to, Ink::Muted, Anchor::End);
    scene.text((x - 6.0, 9.0), from, Ink::Muted, Anchor::End);
    let cells = (1..=HEAT_LEVELS).collect();
    scene.rasters.push(Raster { at: (x, 3.0), size: (width, 12.0), columns: usize::from(HEAT_LEVELS), cells });
}
