//! The oldest Rust that a crate states must be one that all it stands on agree to.

use std::collections::{BTreeSet, HashMap};
use std::process::Command;

use serde_json::Value;

use crate::house::House;
use crate::violation::Violation;

pub(crate) fn rule(house: &House) -> Vec<Violation> {
    match metadata(house) {
        Ok(metadata) => too_new(&metadata),
        Err(error) => vec![Violation::new("msrv", "Cargo.lock", 1, error)],
    }
}

/// The locked dependency graph on this platform: what the build has already fetched, so no network is needed.
fn metadata(house: &House) -> Result<Value, String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", &platform()])
        .current_dir(&house.root)
        .output()
        .map_err(|error| format!("cargo metadata: {error}"))?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).into_owned());
    }
    serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))
}

fn platform() -> String {
    format!("{}-unknown-{}-gnu", std::env::consts::ARCH, std::env::consts::OS)
}

/// The packages that state a newer Rust than a crate of the workspace which stands on them.
fn too_new(metadata: &Value) -> Vec<Violation> {
    let packages: HashMap<&str, &Value> = list(&metadata["packages"]).map(|package| (id(package), package)).collect();
    let needed: HashMap<&str, Vec<&str>> =
        list(&metadata["resolve"]["nodes"]).map(|node| (id(node), needs(node))).collect();
    let mut found = vec![];
    for member in list(&metadata["workspace_members"]).filter_map(Value::as_str) {
        let (name, stated) = (&packages[member]["name"], rust_version(packages[member]));
        if stated.is_none() {
            found.push(Violation::new("msrv", "Cargo.toml", 1, format!("{name} states no rust-version")));
            continue;
        }
        let below = everything_below(member, &needed).into_iter().map(|id| packages[id]);
        for newer in below.filter(|package| rust_version(package) > stated) {
            found.push(Violation::new("msrv", "Cargo.lock", 1, format!("{} for {name}", describe(newer))));
        }
    }
    found
}

/// What a package cannot be built without; its tests may need more.
fn needs(node: &Value) -> Vec<&str> {
    let is_needed = |needed: &&Value| list(&needed["dep_kinds"]).any(|kind| kind["kind"] != "dev");
    list(&node["deps"]).filter(is_needed).filter_map(|needed| needed["pkg"].as_str()).collect()
}

/// All that a package stands on, however far below.
fn everything_below<'a>(package: &'a str, needed: &HashMap<&'a str, Vec<&'a str>>) -> BTreeSet<&'a str> {
    let (mut below, mut ahead) = (BTreeSet::new(), vec![package]);
    while let Some(next) = ahead.pop() {
        ahead.extend(needed.get(next).into_iter().flatten().filter(|needed| below.insert(**needed)));
    }
    below
}

fn id(value: &Value) -> &str {
    value["id"].as_str().unwrap_or_default()
}

fn list(value: &Value) -> impl Iterator<Item = &Value> {
    value.as_array().into_iter().flatten()
}

fn rust_version(package: &Value) -> Option<[u64; 3]> {
    let text = package["rust_version"].as_str()?;
    let mut parts = text.split('.').map(|part| part.parse().unwrap_or(u64::MAX));
    Some([(); 3].map(|()| parts.next().unwrap_or_default()))
}

fn describe(package: &Value) -> String {
    let text = |key: &str| package[key].as_str().unwrap_or("?");
    format!("{} {} needs Rust {}", text("name"), text("version"), text("rust_version"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn graph(own: Value, foreign: Value) -> Value {
        json!({
            "workspace_members": ["own"],
            "packages": [
                { "id": "own", "name": "own", "version": "0.1.0", "rust_version": own },
                { "id": "a", "name": "a", "version": "1.2.3", "rust_version": foreign },
                { "id": "b", "name": "b", "version": "0.2.0", "rust_version": null },
            ],
            "resolve": { "nodes": [
                { "id": "own", "deps": [{ "pkg": "b", "dep_kinds": [{ "kind": null }] }] },
                { "id": "b", "deps": [{ "pkg": "a", "dep_kinds": [{ "kind": "dev" }, { "kind": "build" }] }] },
                { "id": "a", "deps": [] },
            ] },
        })
    }

    #[test]
    fn a_dependency_that_needs_a_newer_rust_is_found() {
        let found = too_new(&graph(json!("1.89"), json!("1.90.1")));
        assert_eq!(found[0].what, "a 1.2.3 needs Rust 1.90.1 for \"own\"");
        assert_eq!(too_new(&graph(json!("1.89"), json!("1.100"))).len(), 1);
        assert_eq!(too_new(&graph(json!("1.89"), json!("1.89.1"))).len(), 1);
    }

    #[test]
    fn what_only_tests_need_may_be_newer() {
        let mut graph = graph(json!("1.89"), json!("1.90"));
        graph["resolve"]["nodes"][1]["deps"][0]["dep_kinds"] = json!([{ "kind": "dev" }]);
        assert!(too_new(&graph).is_empty());
    }

    #[test]
    fn the_graph_of_this_workspace_is_read() {
        let metadata = metadata(&House::read()).expect("a graph");
        let stated = list(&metadata["packages"]).filter(|package| rust_version(package).is_some());
        assert!(stated.count() > list(&metadata["workspace_members"]).count(), "no dependency states a rust-version");
    }

    #[test]
    fn an_older_or_silent_dependency_is_none() {
        assert!(too_new(&graph(json!("1.89"), json!("1.9.0"))).is_empty());
        assert!(too_new(&graph(json!("1.89"), json!("1.89.0"))).is_empty());
        assert!(too_new(&graph(json!("1.89"), json!(null))).is_empty());
    }

    #[test]
    fn a_workspace_that_states_nothing_is_found() {
        assert_eq!(too_new(&graph(json!(null), json!("1.89")))[0].path, "Cargo.toml");
    }
}
