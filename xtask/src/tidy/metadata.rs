//! Packages and dependencies, as Cargo reports them.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::run::output;

/// Every package of the lock file, with its dependencies.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    pub(crate) packages: Vec<Package>,
    /// Normal dependencies by package id, with all features on.
    edges: BTreeMap<String, Vec<String>>,
}

#[derive(Debug)]
pub(crate) struct Package {
    id: String,
    pub(crate) name: String,
    /// SPDX expression of its manifest.
    pub(crate) licence: Option<String>,
    pub(crate) in_workspace: bool,
    /// Names of its normal dependencies, including optional ones.
    dependencies: BTreeSet<String>,
}

impl Metadata {
    pub(crate) fn read(root: &Path) -> Result<Self> {
        let arguments = ["metadata", "--format-version", "1", "--all-features"];
        let text = output(Command::new("cargo").current_dir(root).args(arguments))?;
        Self::parse(&text)
    }

    pub(crate) fn parse(text: &str) -> Result<Self> {
        let json: Value = serde_json::from_str(text)?;
        let members: BTreeSet<String> =
            list(&json, "workspace_members")?.iter().filter_map(as_text).collect();
        let packages = list(&json, "packages")?
            .iter()
            .map(|package| read_package(package, &members))
            .collect::<Result<_>>()?;
        let edges = list(&json["resolve"], "nodes")?
            .iter()
            .map(|node| Ok((text_at(node, "id")?, normal_edges(node)?)))
            .collect::<Result<_>>()?;
        Ok(Self { packages, edges })
    }

    /// Returns the packages of the workspace.
    pub(crate) fn members(&self) -> impl Iterator<Item = &Package> {
        self.packages.iter().filter(|package| package.in_workspace)
    }

    /// Returns the names of the workspace packages that `package` depends on.
    pub(crate) fn workspace_dependencies(&self, package: &Package) -> BTreeSet<String> {
        let members = self.members().map(|member| &member.name);
        members.filter(|name| package.dependencies.contains(*name)).cloned().collect()
    }

    /// Returns the names of all direct and indirect dependencies of the workspace package `name`.
    pub(crate) fn reachable(&self, name: &str) -> BTreeSet<&str> {
        let start = self.members().find(|package| package.name == name);
        let mut seen = BTreeSet::new();
        let mut open: Vec<&String> = start.map(|package| &package.id).into_iter().collect();
        while let Some(id) = open.pop() {
            for next in self.edges.get(id).into_iter().flatten() {
                if seen.insert(next) {
                    open.push(next);
                }
            }
        }
        let is_seen = |package: &&Package| seen.contains(&package.id);
        self.packages.iter().filter(is_seen).map(|package| package.name.as_str()).collect()
    }
}

fn read_package(package: &Value, members: &BTreeSet<String>) -> Result<Package> {
    let id = text_at(package, "id")?;
    let dependencies = list(package, "dependencies")?
        .iter()
        .filter(|dependency| dependency["kind"].is_null())
        .map(|dependency| text_at(dependency, "name"))
        .collect::<Result<_>>()?;
    Ok(Package {
        name: text_at(package, "name")?,
        licence: as_text(&package["license"]),
        in_workspace: members.contains(&id),
        dependencies,
        id,
    })
}

/// Returns the normal edges, which have no kind; those for tests and build scripts have one.
fn normal_edges(node: &Value) -> Result<Vec<String>> {
    let mut edges = Vec::new();
    for dependency in list(node, "deps")? {
        if list(dependency, "dep_kinds")?.iter().any(|kind| kind["kind"].is_null()) {
            edges.push(text_at(dependency, "pkg")?);
        }
    }
    Ok(edges)
}

fn list<'a>(json: &'a Value, key: &str) -> Result<&'a [Value]> {
    let values = json[key].as_array().with_context(|| format!("cargo metadata has no {key}"))?;
    Ok(values)
}

fn text_at(json: &Value, key: &str) -> Result<String> {
    as_text(&json[key]).with_context(|| format!("cargo metadata has no {key}"))
}

fn as_text(json: &Value) -> Option<String> {
    json.as_str().map(str::to_owned)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// `core` uses `log`; `cli` uses `core`, and `kit` for its tests; `log` is an external package.
    pub(crate) const SAMPLE: &str = r#"{
      "workspace_members": ["core 1", "cli 1", "kit 1"],
      "packages": [
        {"id": "log 1", "name": "log", "license": "MIT OR GPL-3.0", "dependencies": []},
        {"id": "kit 1", "name": "kit", "license": "MIT", "dependencies": []},
        {"id": "core 1", "name": "core", "license": "MIT",
         "dependencies": [{"name": "log", "kind": null}]},
        {"id": "cli 1", "name": "cli", "license": "MIT",
         "dependencies": [{"name": "core", "kind": null}, {"name": "kit", "kind": "dev"}]}
      ],
      "resolve": {"nodes": [
        {"id": "log 1", "deps": []},
        {"id": "kit 1", "deps": []},
        {"id": "core 1", "deps": [{"pkg": "log 1", "dep_kinds": [{"kind": null}]}]},
        {"id": "cli 1", "deps": [
          {"pkg": "core 1", "dep_kinds": [{"kind": null}]},
          {"pkg": "kit 1", "dep_kinds": [{"kind": "dev"}]}]}
      ]}
    }"#;

    #[test]
    fn normal_dependencies_are_followed_and_no_others() {
        let metadata = Metadata::parse(SAMPLE).unwrap();
        assert_eq!(Vec::from_iter(metadata.reachable("cli")), ["core", "log"]);
        let cli = metadata.members().find(|package| package.name == "cli").unwrap();
        assert_eq!(Vec::from_iter(metadata.workspace_dependencies(cli)), ["core"]);
    }
}
