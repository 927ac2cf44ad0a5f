//! The published evaluation that this one repeats in kind: DAMON v6, linux-mm, 9 March 2020; 13 programs of PARSEC3 and 12
//! of SPLASH-2x, five runs each.

use super::tables::Metric;
use lowtide_report::text::Grid;

/// `metric,workload,orig,CONFIG,CONFIG_percent,...`; the last workload of each metric is `total`.
const TABLE: &str = include_str!("../../data/damon-v6.csv");

/// What was published of one configuration by one metric: percent over the original in total, least and most.
#[derive(Debug, Clone, PartialEq)]
pub struct Published {
    /// Of the sums over all programs.
    pub total: f64,
    /// The program with the least, and how much.
    pub least: (String, f64),
    /// The program with the most, and how much.
    pub most: (String, f64),
}

/// What was published, if it was.
#[must_use]
pub fn of(metric: &str, config: &str) -> Option<Published> {
    let mut reader = csv::Reader::from_reader(TABLE.as_bytes());
    let wanted = format!("{config}_percent");
    let column = reader.headers().ok()?.iter().position(|name| name == wanted)?;
    let rows = reader.records().filter_map(Result::ok).filter(|row| row.get(0) == Some(metric));
    let rows: Vec<(String, f64)> =
        rows.filter_map(|row| Some((row.get(1)?.to_owned(), row.get(column)?.parse().ok()?))).collect();
    let programs: Vec<&(String, f64)> = rows.iter().filter(|(name, _)| name != "total" && name != "average").collect();
    let total = rows.iter().find(|(name, _)| name == "total")?.1;
    let least = programs.iter().min_by(|a, b| a.1.total_cmp(&b.1))?;
    let most = programs.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    Some(Published { total, least: (*least).clone(), most: (*most).clone() })
}

/// Totals of here beside the published ones. `ours` gives the percentage of a configuration by a metric.
#[must_use]
pub fn grid(metrics: &[Metric], configs: &[String], ours: impl Fn(&Metric, &str) -> Option<f64>) -> Grid {
    let title = "Percent over orig in total, beside DAMON v6 (other programs, another machine)";
    let mut grid = Grid::new(title, &["metric", "config", "here", "published", "its least", "its most"]);
    for metric in metrics {
        for config in configs {
            let Some(published) = of(metric.name, config.trim_end_matches("-tuned")) else { continue };
            let of = |(name, value): &(String, f64)| format!("{value:+.2} ({name})");
            grid.row([
                metric.name.to_owned(),
                config.clone(),
                ours(metric, config).map_or_else(|| "-".to_owned(), |percent| format!("{percent:+.2}")),
                format!("{:+.2}", published.total),
                of(&published.least),
                of(&published.most),
            ]);
        }
    }
    grid
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_published_figures_are_those_of_the_mail() {
        let prcl = of("rss.avg", "prcl").unwrap();
        assert!((prcl.total - -23.59).abs() < 0.01 && (prcl.least.1 - -88.86).abs() < 0.01, "{prcl:?}");
        assert_eq!(prcl.least.0, "parsec3/freqmine");
        let rec = of("runtime", "rec").unwrap();
        assert!((rec.total - 0.76).abs() < 0.01 && (rec.most.1 - 2.38).abs() < 0.01, "{rec:?}");
        assert_eq!(of("runtime", "mine"), None);
    }
}
