//! Charts made of characters.

use lowtide_model::units::{float, index};

/// Eighths of a cell, from empty to full.
const EIGHTHS: [char; 9] = [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];

/// One layer of a chart: its values over time and the character that fills it.
pub(super) struct Layer<'a> {
    pub values: &'a [Option<f64>],
    pub fill: char,
}

/// The highest value of each of `columns` equal stretches of the values.
pub(super) fn columns(values: &[Option<f64>], columns: usize) -> Vec<Option<f64>> {
    let columns = columns.min(values.len()).max(1);
    (0..columns)
        .map(|at| {
            let (from, to) = (at * values.len() / columns, (at + 1) * values.len() / columns);
            values[from..to].iter().flatten().copied().reduce(f64::max)
        })
        .collect()
}

/// Index of a cell for a share of a height.
fn level(share: f64, of: usize) -> usize {
    index((share.clamp(0.0, 1.0) * float(of)).round())
}

/// One line of eighth blocks; a dot where there is no value.
pub(super) fn line(values: &[Option<f64>], width: usize, max: f64) -> String {
    let cell =
        |value: Option<f64>| value.map_or('·', |value| if max > 0.0 { EIGHTHS[level(value / max, 8)] } else { ' ' });
    columns(values, width).into_iter().map(cell).collect()
}

/// Layers before one another, the first in front, each filled from zero up; the rows from the top.
pub(super) fn layers(layers: &[Layer], width: usize, height: usize, max: f64) -> Vec<String> {
    let binned: Vec<(Vec<Option<f64>>, char)> =
        layers.iter().map(|layer| (columns(layer.values, width), layer.fill)).collect();
    let width = binned.iter().map(|(values, _)| values.len()).max().unwrap_or(0);
    let cell = |row: usize, column: usize| {
        let reaches = |(values, fill): &(Vec<Option<f64>>, char)| {
            let value = values.get(column).copied().flatten()?;
            (max > 0.0 && level(value / max, height) > row).then_some(*fill)
        };
        binned.iter().find_map(reaches).unwrap_or(' ')
    };
    (0..height).rev().map(|row| (0..width).map(|column| cell(row, column)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_keeps_peaks_and_shows_gaps() {
        let values = [Some(0.0), Some(8.0), None, None, Some(4.0), Some(2.0)];
        assert_eq!(line(&values, 3, 8.0), "█·▄");
        assert_eq!(line(&values, 100, 8.0), " █··▄▂");
    }

    #[test]
    fn the_front_layer_hides_those_behind() {
        let (front, back) = ([Some(1.0), Some(2.0)], [Some(4.0), Some(2.0)]);
        let rows = layers(&[Layer { values: &front, fill: '#' }, Layer { values: &back, fill: '.' }], 9, 4, 4.0);
        assert_eq!(rows, [". ", ". ", ".#", "##"]);
    }
}
