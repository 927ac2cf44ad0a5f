//! Work without a rhythm of its own, which is done when it is due and can be afforded.

/// A change of the target's size that calls for doing it again.
const GROWTH: f64 = 0.05;

/// Slow work: when it was last done, and what it cost then.
#[derive(Debug, Clone, Copy, Default)]
pub struct Slow {
    /// When it was last done, seconds.
    pub done_s: Option<f64>,
    /// CPU seconds it took then.
    pub cost_s: f64,
    /// The target's size then.
    pub size: f64,
}

impl Slow {
    /// Whether it is due: after `every_s`, or sooner where the target's size has changed.
    #[must_use]
    pub fn is_due(&self, now_s: f64, every_s: f64, size: f64) -> bool {
        let Some(done) = self.done_s else { return true };
        let grown = (size - self.size).abs() > GROWTH * self.size.max(1.0);
        now_s - done >= every_s || (grown && now_s - done >= 0.15)
    }
}
