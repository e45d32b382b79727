//! SQL statements by name.

macro_rules! statements {
    ($vis:vis const { $($name:ident: $file:literal,)* }) => {
        $($vis const $name: &str = include_str!($file);)*
    };
}

statements! {
    pub(super) const {
        REGISTRY_APPEND_HISTORY: "sql/registry/append_history.sql",
        REGISTRY_COUNT_OF_TOKEN: "sql/registry/count_of_token.sql",
        REGISTRY_FIND: "sql/registry/find.sql",
        REGISTRY_FIND_INSTANCE: "sql/registry/find_instance.sql",
        REGISTRY_JOIN: "sql/registry/join.sql",
        REGISTRY_PUT_CONNECTOR: "sql/registry/put_connector.sql",
        REGISTRY_PUT_INSTANCE: "sql/registry/put_instance.sql",
    }
}
