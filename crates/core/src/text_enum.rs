//! Macro for enums that are stored and printed as text.

/// Defines an enum from rows: the value, its text in logs, documents and JSON, and a sentence that
/// describes it.
#[doc(hidden)]
#[macro_export]
macro_rules! text_enum {
    (
        $(#[$meta:meta])*
        pub enum $name:ident { $($value:ident $word:literal $sentence:literal)* }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $(#[doc = $sentence] $value,)* }

        impl $name {
            /// All values, in order.
            pub const ALL: &[Self] = &[$(Self::$value,)*];

            /// Returns the text that is stored, logged and printed.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$value => $word,)* }
            }

            /// Returns a sentence that describes the value.
            pub const fn sentence(self) -> &'static str {
                match self { $(Self::$value => $sentence,)* }
            }

            /// Returns the value with this text.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == word)
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.as_str())
            }
        }
    };
}
