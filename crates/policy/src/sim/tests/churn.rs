use super::super::churn::{Churn, Stand};
use crate::policies::Spec;

/// Seven days of workloads that come and go, tens of thousands of them: what is remembered is that of those that are there.
#[test]
fn a_week_of_workloads_leaves_nothing_behind() {
    let churn = Churn { stay: 4, come: 120, turn_s: 60.0 };
    for name in ["auto", "promotion", "pressure"] {
        let mut policy = Spec::built_in(name).unwrap().build(1).unwrap().into_workloads().unwrap();
        let mut hours = Vec::new();
        churn.run(policy.as_mut(), 7 * 24, |_, stand| hours.push(stand));
        let last = hours[hours.len() - 1];
        assert!(last.observed > 20_000, "{last:?}");
        // Four hours of its past are the most that any policy here remembers.
        let (early, late) = hours[6..].split_at(24);
        // The mean of each that is remembered: how many there are at the end of an hour varies, and so does what is known of them.
        let sum = |stands: &[Stand], of: fn(&Stand) -> usize| stands.iter().map(of).sum::<usize>();
        let each = |stands: &[Stand]| sum(stands, |stand| stand.bytes) / sum(stands, |stand| stand.remembered).max(1);
        let bytes = (each(early), each(late));
        assert!(bytes.1 <= bytes.0 + bytes.0 / 10 && bytes.0 > 100, "{name}: {bytes:?}");
        // A twelfth of those that come are there at a time, and those of the last minute are remembered for it.
        let remembered = hours.iter().map(|stand| stand.remembered).max().unwrap();
        assert!((4..=4 + 10 + 4).contains(&remembered), "{name}: {remembered}");
        let reclaimed: u64 = hours.iter().map(|stand| stand.reclaimed).sum();
        assert!(reclaimed > 1_000, "{name}: {reclaimed} pages");
    }
}
