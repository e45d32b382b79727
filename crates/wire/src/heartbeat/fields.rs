//! Counters and labels of a heartbeat: one list each.
//!
//! A new counter or label is one line here, and an option of `tenure beat`. Senders, storages, JSON
//! views and the OpenAPI document loop over the lists.

/// Defines a struct whose fields have one type, and the list of their names.
macro_rules! field_list {
    (
        $(#[$meta:meta])* $type:ident<$default:ty>, $names:ident {
            $($(#[$doc:meta])* $name:ident,)*
        }
    ) => {
        #[doc = concat!("Names of the fields of [`", stringify!($type), "`], in their order.")]
        pub const $names: [&str; [$(stringify!($name)),*].len()] = [$(stringify!($name)),*];

        $(#[$meta])*
        pub struct $type<T = $default> {
            $($(#[$doc])* pub $name: T,)*
        }

        impl<T> $type<T> {
            /// Applies a function to each field.
            pub fn map<U>(self, mut f: impl FnMut(T) -> U) -> $type<U> {
                $type { $($name: f(self.$name),)* }
            }

            /// Pairs each field with that of the same name.
            pub fn zip<U>(self, other: $type<U>) -> $type<(T, U)> {
                $type { $($name: (self.$name, other.$name),)* }
            }

            /// Returns the fields in their order.
            pub fn fields(&self) -> [&T; $names.len()] {
                [$(&self.$name),*]
            }

            /// Returns the fields in their order, to change them.
            pub fn fields_mut(&mut self) -> [&mut T; $names.len()] {
                [$(&mut self.$name),*]
            }

            /// Returns the field of a name.
            pub fn get_mut(&mut self, name: &str) -> Option<&mut T> {
                let index = $names.iter().position(|known| *known == name)?;
                self.fields_mut().into_iter().nth(index)
            }
        }
    };
}

/// The first counters are required; connectors may leave out every later one.
pub const REQUIRED_COUNTERS: usize = 4;

field_list! {
    /// Counters of a process since it started, or between two heartbeats.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize)]
    #[serde(deny_unknown_fields, default)]
    Counters<i64>, COUNTER_NAMES {
        /// Messages accepted as new.
        messages_ingested,
        /// Messages given up.
        messages_failed,
        /// Calls to the source.
        source_api_calls,
        /// Checkpoints stored.
        checkpoint_saves,
        /// Messages accepted as duplicates.
        dedupe_accepted,
    }
}

field_list! {
    /// Optional texts about a process, in the object `connector`. They are stored and shown as
    /// they are.
    #[derive(Clone, Debug, Default, PartialEq, Eq)]
    Labels<Option<String>>, LABEL_NAMES {
        /// Version of the connector.
        version,
    }
}
