//! Enumerations whose variants have a word each, in files and in messages.

/// Declares an enumeration with `ALL`, `name` and `named`.
macro_rules! named {
    ($(#[$meta:meta])* pub enum $kind:ident { $($(#[$doc:meta])* $variant:ident = $word:literal,)* }) => {
        $(#[$meta])*
        pub enum $kind {
            $($(#[$doc])* $variant,)*
        }

        #[allow(dead_code, reason = "not every enumeration is listed or parsed")]
        impl $kind {
            /// All of them.
            pub const ALL: [Self; [$($word),*].len()] = [$(Self::$variant),*];

            /// Its word.
            #[must_use]
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }

            /// The one of that word.
            #[must_use]
            pub fn named(word: &str) -> Option<Self> {
                Self::ALL.into_iter().find(|one| one.name() == word)
            }
        }
    };
}
pub(crate) use named;
