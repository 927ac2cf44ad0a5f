//! Drawing heatmaps: time to the right, addresses upward, colour for the access rate.

use lowtide_model::units::{float, human_bytes, index};

use super::super::draw::canvas::Raster;
use super::super::draw::theme::HEAT_LEVELS;
use super::super::draw::{
    Area, Axis, Drawn, Figure, Ink, Layout, Page, Plot, Units, aligned, heading, px, shorten, text,
};
use super::super::regions::file_name;
use super::super::text::capital;
use super::layout::Section;
use super::take::Panel;
use plotters::style::text_anchor::HPos;

/// Height of the largest process' map and of the others.
const HEIGHTS: [i32; 2] = [330, 110];

/// Height of a cut in the address space.
const CUT: f64 = 9.0;

/// Levels of a rate, of so many.
pub(super) fn level(rate: f32, of: u8) -> u8 {
    u8::try_from(index(f64::from(rate.clamp(0.0, 1.0) * f32::from(of)).round())).unwrap_or(of)
}

/// One drawing for each process.
pub(super) fn figures(panels: &[Panel], page: Page) -> Vec<Figure<'_>> {
    panels.iter().enumerate().map(|(at, panel)| figure(panel, at == 0, page)).collect()
}

fn figure(panel: &Panel, first: bool, page: Page) -> Figure<'_> {
    let title = if panel.pid == 0 { "physical addresses".to_owned() } else { format!("process {}", panel.pid) };
    let label = format!("Access rate by address and time, {title}.");
    let height = HEIGHTS[usize::from(!first)];
    Figure::new(page, px(height + 74), &label, move |area| {
        if first {
            ramp(area, page)?;
        }
        let rest = heading(area, &capital(&title))?;
        let places = places(panel, f64::from(height));
        let time = Axis::time(panel.from_s, panel.to_s, page.of(8, 3));
        let axes = [&time, &Axis::new(0.0, f64::from(height), [])];
        let (left, right) = (page.of(px(120), px(4)), page.of(px(168), px(104)));
        let layout = Layout { left, right, bottom: px(44), grid: false, x_name: time.time_name(), ..Layout::default() };
        let mut plot = Plot::new(&rest, axes, layout)?;
        let ends = |section: &Section| [section.start, section.end].map(|address| format!("{address:#x}"));
        let sections: Vec<[String; 2]> = places.iter().map(|(section, ..)| ends(section)).collect();
        plot.live(Units { x: "s", y: "" }, (&[], &sections), |plot| {
            places.iter().try_for_each(|(section, low, high)| plot.element(raster(panel, section, (*low, *high))))
        })?;
        addresses(&mut plot, panel, &places, page)?;
        let pixel_s = (panel.to_s - panel.from_s) / f64::from((page.width() - left - right) / px(1));
        places
            .iter()
            .skip(1)
            .try_for_each(|(_, low, _)| cut(&mut plot, (panel.from_s, panel.to_s), low - CUT / 2.0, pixel_s))
    })
}

/// Addresses at the left, where there is room for them, and names at the right.
fn addresses(plot: &mut Plot, panel: &Panel, places: &[(&Section, f64, f64)], page: Page) -> Drawn {
    let height = places.last().map_or(0.0, |(.., high)| *high);
    let (mut free, mut free_address) = (0.0, 0.0);
    for (section, low, high) in places {
        if page == Page::Wide && *low >= free_address {
            let style = aligned(Ink::Muted, HPos::Right);
            plot.text(&format!("{:#x}", section.start), &style, (panel.from_s, *low), (px(-8), px(-5)))?;
            free_address = low + 13.0;
        }
        for (y, name, bytes) in names(panel, section, (*low, *high)) {
            let name = if page == Page::Wide { label_of(panel, name, bytes) } else { plain(name) };
            let y = f64::max(y, free);
            if y < height + 4.0 {
                let name = shorten(&name, page.of(25, 14));
                plot.text(&name, &text(Ink::Muted, 12, false), (panel.to_s, y), (px(9), 0))?;
            }
            free = y + 14.0;
        }
    }
    Ok(())
}

/// The sections from the lowest with the heights between which they lie.
fn places(panel: &Panel, height: f64) -> Vec<(&Section, f64, f64)> {
    let sections = &panel.layout.sections;
    let cuts = CUT * float(sections.len().saturating_sub(1));
    let unit = ((height - cuts) / float(panel.layout.rows.max(1))).max(0.5);
    let mut next = 0.0;
    let place = |section: &'_ Section| {
        let (low, high) = (next, next + unit * float(section.rows));
        next = high + CUT;
        (low, high)
    };
    let heights: Vec<(f64, f64)> = sections.iter().map(place).collect();
    sections.iter().zip(heights).map(|(section, (low, high))| (section, low, high)).collect()
}

fn raster(panel: &Panel, section: &Section, (low, high): (f64, f64)) -> Raster<(f64, f64)> {
    let rows = (section.first_row..section.first_row + section.rows).rev();
    let entry = |rate: Option<f32>| rate.map_or(0, |rate| level(rate, HEAT_LEVELS - 1) + 1);
    let cells = rows.flat_map(|row| (0..panel.columns).map(move |column| entry(panel.cell(row, column)))).collect();
    Raster { corners: [(panel.from_s, high), (panel.to_s, low)], columns: panel.columns, cells }
}

/// Where the address space was cut: two slanted strokes at either end, as on a broken axis.
fn cut(plot: &mut Plot, (from_s, to_s): (f64, f64), y: f64, pixel_s: f64) -> Drawn {
    for x in [from_s, from_s + 5.0 * pixel_s, to_s - 9.0 * pixel_s, to_s - 4.0 * pixel_s] {
        plot.line(vec![(x, y - 3.0), (x + 4.0 * pixel_s, y + 3.0)], Ink::Muted, 5)?;
    }
    Ok(())
}

/// Names of the mappings of a section that are tall enough for a line, or of its largest.
fn names<'a>(panel: &'a Panel, section: &Section, (low, high): (f64, f64)) -> Vec<(f64, &'a str, u64)> {
    let share = |bytes: u64| float(bytes) / float(section.end - section.start);
    let inside = panel.names.iter().filter(|(start, _, _)| (section.start..section.end).contains(start));
    inside
        .enumerate()
        .filter(|(at, (_, bytes, _))| *at == 0 || (panel.sized && *at < 4 && share(*bytes) * (high - low) >= 14.0))
        .map(|(_, (start, bytes, name))| {
            let middle = share(start - section.start) + share(*bytes) / 2.0;
            (low + (high - low) * middle, name.as_str(), *bytes)
        })
        .collect()
}

/// A mapping's name and, where it is known, its size.
pub(super) fn label_of(panel: &Panel, name: &str, bytes: u64) -> String {
    if !panel.sized {
        return plain(name);
    }
    format!("{}, {}", plain(name), human_bytes(float(bytes)))
}

fn plain(name: &str) -> String {
    if name.is_empty() { "nameless".to_owned() } else { file_name(name) }
}

/// The scale of colours, at the right above the largest map.
fn ramp(area: &Area, page: Page) -> Drawn {
    let (right, width) = (page.width(), page.of(px(120), px(70)));
    let x = right - px(44) - width;
    let style = aligned(Ink::Muted, HPos::Right);
    area.draw_text("100 %", &style, (right, px(8)))?;
    area.draw_text(page.of("accessed in 0 %", "0 %"), &style, (x - px(6), px(8)))?;
    let cells = (1..=HEAT_LEVELS).collect();
    let corners = [(x, px(2)), (x + width, px(14))];
    area.draw(&Raster { corners, columns: usize::from(HEAT_LEVELS), cells })?;
    Ok(())
}
