//! The oldest Rust we state must be one that every dependency agrees to.

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

/// The packages that state a newer Rust than the oldest one a package of the workspace states.
fn too_new(metadata: &Value) -> Vec<Violation> {
    let members: Vec<&Value> = list(&metadata["workspace_members"]).collect();
    let (own, foreign): (Vec<_>, Vec<_>) =
        list(&metadata["packages"]).partition(|package| members.contains(&&package["id"]));
    let stated = own.iter().map(|package| rust_version(package)).min().flatten();
    let Some(stated) = stated else {
        return vec![Violation::new("msrv", "Cargo.toml", 1, "a crate of the workspace states no rust-version")];
    };
    let newer = foreign.iter().filter(|package| rust_version(package) > Some(stated));
    newer.map(|package| Violation::new("msrv", "Cargo.lock", 1, describe(package))).collect()
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
            ],
        })
    }

    #[test]
    fn a_dependency_that_needs_a_newer_rust_is_found() {
        let found = too_new(&graph(json!("1.89"), json!("1.90.1")));
        assert_eq!(found[0].what, "a 1.2.3 needs Rust 1.90.1");
        assert_eq!(too_new(&graph(json!("1.89"), json!("1.100"))).len(), 1);
        assert_eq!(too_new(&graph(json!("1.89"), json!("1.89.1"))).len(), 1);
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
