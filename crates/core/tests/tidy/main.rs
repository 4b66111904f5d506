//! The style of the house, enforced: every rule is applied to every Rust file and manifest of the workspace, and all violations
//! are reported at once. A rule that must be broken is listed in `exceptions`, with its reason.

mod exceptions;
mod house;
mod manifests;
mod msrv;
mod purity;
mod rooms;
mod size;
mod source;
mod token;
mod violation;
mod words;

use house::House;
use violation::Violation;

#[test]
fn the_house_is_tidy() {
    let mut house = House::read();
    let mut found = std::mem::take(&mut house.unreadable);
    found.extend(house.sources.iter().flat_map(source_rules));
    found.extend(size::median_function(&house.sources));
    found.extend(purity::forbid_unsafe(&house.sources));
    found.extend(manifests::rules(&house));
    found.extend(msrv::rule(&house));
    let left = exceptions::settle(found, exceptions::ALLOWED);
    assert!(left.is_empty(), "{} violations:\n{}", left.len(), violation::list(&left));
}

fn source_rules(source: &source::Source) -> Vec<Violation> {
    let rules = [
        size::file_lines,
        size::function_lines,
        words::leftovers,
        words::machine_paths,
        purity::unsafe_homes,
        purity::core_is_pure,
        rooms::names,
        rooms::opening,
        rooms::lib_is_a_hall,
    ];
    rules.iter().flat_map(|rule| rule(source)).collect()
}
