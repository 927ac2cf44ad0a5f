//! Colours: the colour of each role on light and on dark background.
//!
//! Blue, ochre and grey for the kinds of memory, a ramp from warm to cold for idle ages, and one crimson that always
//! means the working set: distinct with any of the common kinds of colour blindness, and by lightness alone. Lines that
//! are compared have the palette of Okabe and Ito (2008), yellow only on dark ground, where it is visible.

use std::fmt::Write;

use lowtide_model::units::integer;
use plotters::style::RGBColor;

/// Red, green, blue.
pub(crate) type Rgb = (u8, u8, u8);

macro_rules! inks {
    ($($name:ident $light:literal $dark:literal;)*) => {
        /// The role of a colour.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Ink { $($name,)* }

        impl Ink {
            /// All roles.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The colour on light and on dark ground. Those on light ground are all different, as it is by them
            /// that a page finds a drawing's roles again.
            pub(crate) fn hex(self) -> (u32, u32) {
                match self { $(Self::$name => ($light, $dark),)* }
            }
        }
    };
}

inks! {
    Text     0x1B_2733 0xE4_EBF1;
    Muted    0x5C_6B7A 0x9A_A9B7;
    Axis     0xA9_B5C0 0x52_616F;
    Grid     0xE1_E7EC 0x2A_3641;
    Ground   0xFF_FFFF 0x14_1C24;
    Anon     0x5B_95CC 0x4F_8BC6;
    File     0xE6_B450 0xC9_983A;
    Kernel   0x9B_A1A9 0x76_7F89;
    Resident 0x14_304D 0xF4_F7FA;
    Demand   0x4A_5B6C 0xB9_C6D2;
    Need     0xB4_1F49 0xFF_7D95;
    Age0     0xB2_342A 0xC8_4A3C;
    Age1     0xDD_7340 0xE0_8350;
    Age2     0xF0_B95F 0xE8_B866;
    Age3     0xA6_C9D6 0x9F_C4D2;
    Age4     0x68_99C2 0x5E_90BD;
    Age5     0x38_5D8C 0x3E_649A;
    Window1  0xD4_6A2C 0xF0_9860;
    Window5  0xB0_8A1E 0xDD_B94E;
    Window30 0x1F_8A7D 0x4F_C2B3;
    Window60 0x2F_72B5 0x6F_ACE8;
    Window120 0x5A_4A99 0xA7_98EA;
    Line0    0x00_72B2 0x3A_9AD9;
    Line1    0xD5_5E00 0xE8_6F10;
    Line2    0x00_9E73 0x1D_B58A;
    Line3    0xCC_79A7 0xDD_94BC;
    Line4    0x11_1111 0xF0_E442;
    Line5    0xE6_9F00 0xF2_B430;
    Line6    0x56_B4E9 0x8F_D0F5;
}

impl Ink {
    /// Its name in a page's variables.
    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// The colour on light ground.
    pub(crate) fn rgb(self) -> RGBColor {
        let [_, red, green, blue] = self.hex().0.to_be_bytes();
        RGBColor(red, green, blue)
    }
}

/// Rules that turn a drawing's light colours into variables a page defines (`--ink-need` and so on).
pub(crate) fn rules(scope: &str) -> String {
    let mut css = String::new();
    for ink in Ink::ALL {
        let (light, name) = (ink.hex().0, variable(*ink));
        let _ = writeln!(
            css,
            "{scope} [fill=\"#{light:06X}\"]{{fill:var({name})}}{scope} [stroke=\"#{light:06X}\"]{{stroke:var({name})}}"
        );
    }
    css
}

/// The variables themselves, for light or dark ground.
pub(crate) fn variables(dark: bool) -> String {
    let mut css = String::new();
    for ink in Ink::ALL {
        let (light, on_dark) = ink.hex();
        let _ = write!(css, "{}:#{:06X};", variable(*ink), if dark { on_dark } else { light });
    }
    css
}

fn variable(ink: Ink) -> String {
    format!("--ink-{}", ink.name())
}

/// Levels of the heat ramp.
pub(crate) const HEAT_LEVELS: u8 = 24;

/// The heat ramp: deep sea to sand. Lightness rises in equal steps of Oklab (Ottosson, 2020), so equal steps of the
/// access rate appear as equal steps, in grey too; both ends stand out from white paper and from a dark screen.
pub(crate) fn heat(level: u8) -> Rgb {
    let share = f64::from(level.min(HEAT_LEVELS - 1)) / f64::from(HEAT_LEVELS - 1);
    let lightness = 0.335 + 0.565 * share;
    let hue = (262.0 - 178.0 * share).to_radians();
    // As colourful as a screen can show at the teal in the middle, more where it can show more.
    let chroma = 0.082 + 0.05 * ((share - 0.4) / 0.6).max(0.0);
    oklab(lightness, chroma * hue.cos(), chroma * hue.sin())
}

/// The heat ramp, each colour as a number.
pub(crate) fn ramp() -> Vec<u32> {
    let number = |(red, green, blue)| u32::from_be_bytes([0, red, green, blue]);
    (0..HEAT_LEVELS).map(heat).map(number).collect()
}

/// Oklab to sRGB: the published inverse matrices.
fn oklab(lightness: f64, a: f64, b: f64) -> Rgb {
    let long = (lightness + 0.396_337_777_4 * a + 0.215_803_757_3 * b).powi(3);
    let medium = (lightness - 0.105_561_345_8 * a - 0.063_854_172_8 * b).powi(3);
    let short = (lightness - 0.089_484_177_5 * a - 1.291_485_548_0 * b).powi(3);
    let gamma = |linear: f64| {
        let linear = linear.clamp(0.0, 1.0);
        let value = if linear <= 0.003_130_8 { 12.92 * linear } else { 1.055 * linear.powf(1.0 / 2.4) - 0.055 };
        u8::try_from(integer((value * 255.0).round())).unwrap_or(u8::MAX)
    };
    (
        gamma(4.076_741_662_1 * long - 3.307_711_591_3 * medium + 0.230_969_929_2 * short),
        gamma(-1.268_438_004_6 * long + 2.609_757_401_1 * medium - 0.341_319_396_5 * short),
        gamma(-0.004_196_086_3 * long - 0.703_418_614_7 * medium + 1.707_614_701_0 * short),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_role_is_found_again_by_its_light_colour() {
        let mut colours: Vec<u32> = Ink::ALL.iter().map(|ink| ink.hex().0).collect();
        colours.sort_unstable();
        colours.dedup();
        assert_eq!(colours.len(), Ink::ALL.len());
    }

    #[test]
    fn the_heat_ramp_gets_lighter_all_the_way() {
        let grey = |level| {
            let (r, g, b) = heat(level);
            0.2126 * f64::from(r).powf(2.2) + 0.7152 * f64::from(g).powf(2.2) + 0.0722 * f64::from(b).powf(2.2)
        };
        assert!((1..HEAT_LEVELS).all(|level| grey(level) > grey(level - 1)));
    }
}
