//! Who may know whom: the crates, and the files of each crate.

use std::collections::BTreeMap;
use std::fs;

use roci_tidy::{Crate, Graph, root};

/// The crates of this tree that each may name. What is not here may name none.
const ARROWS: [(&str, &[&str]); 13] = [
    ("driver", &["dpdk-sys", "roci-protocol"]),
    ("testkit", &["roci-driver", "roci-protocol"]),
    ("perftest", &["roci-driver", "roci-protocol"]),
    ("msgcore", &["roci-driver", "roci-launcher", "roci-protocol"]),
    ("libfabric", &["roci-msgcore"]),
    ("cli", &["roci-driver", "roci-launcher", "roci-msgcore", "roci-perftest", "roci-protocol"]),
    ("benches", &["roci-driver", "roci-msgcore", "roci-protocol"]),
    ("lab", &["roci-driver", "roci-launcher", "roci-msgcore", "roci-perftest", "roci-protocol"]),
    ("fuzz", &["roci-driver", "roci-protocol", "roci-testkit"]),
    ("launcher", &["roci-pmi"]),
    ("launcher/pmi", &[]),
    ("protocol", &["roci-crc"]),
    ("protocol/crc", &[]),
];

/// Files that stand in circles of imports, by crate, as many as there were when this was last looked at. May only fall. What a
/// file takes from the module that it is a part of does not count.
const CIRCLES: [(&str, usize); 4] = [("protocol", 9), ("driver", 0), ("launcher", 2), ("msgcore", 0)];

fn names_of_this_tree(manifest: &toml::Table, section: &str) -> Vec<String> {
    let names = manifest.get(section).and_then(toml::Value::as_table).into_iter().flat_map(toml::Table::keys);
    names.filter(|name| name.starts_with("roci-") || *name == "dpdk-sys").cloned().collect()
}

#[test]
fn crates_name_only_those_below_them_and_tests_the_testkit_as_well() {
    let arrows = BTreeMap::from(ARROWS);
    let workspace: toml::Table =
        fs::read_to_string(root().join("Cargo.toml")).expect("the workspace").parse().expect("TOML");
    for member in workspace["workspace"]["members"].as_array().expect("a list") {
        let folder = member.as_str().expect("a folder");
        let manifest = fs::read_to_string(root().join(folder).join("Cargo.toml")).expect("a manifest");
        let manifest: toml::Table = manifest.parse().expect("TOML");
        let allowed = arrows.get(folder).copied().unwrap_or_default();
        for name in names_of_this_tree(&manifest, "dependencies") {
            assert!(allowed.contains(&name.as_str()), "{folder} names {name}");
        }
        for name in names_of_this_tree(&manifest, "dev-dependencies") {
            assert!(name == "roci-testkit" || allowed.contains(&name.as_str()), "tests of {folder} name {name}");
        }
    }
}

#[test]
fn no_more_files_stand_in_circles_than_did() {
    for (folder, limit) in CIRCLES {
        let house = Crate::read(folder);
        let graph = Graph::of(&house).without_ancestors(&house);
        let circles = graph.circles();
        let mut said = Vec::new();
        for circle in &circles {
            said.push(format!("{} files of {folder} stand in a circle:", circle.len()));
            for import in
                graph.imports.iter().filter(|import| circle.contains(&import.from) && circle.contains(&import.to))
            {
                let path = |file: usize| house.sources[file].path.display().to_string();
                said.push(format!("  {} takes {} from {}", path(import.from), import.name, path(import.to)));
            }
        }
        let count: usize = circles.iter().map(Vec::len).sum();
        println!("{folder}: {count} files in {} circles", circles.len());
        assert!(count <= limit, "{}\n{count} files, and there were {limit}", said.join("\n"));
        assert!(count == limit, "{folder} has fewer files in circles than {limit}: lower the limit to {count}");
    }
}

/// The floors of msgcore, from the lowest up. A file takes only from its own room, or from floors below.
const FLOORS: [&[&str]; 9] = [
    &["units", "sync"],
    &["receive_queues"],
    &["core"],
    &["services"],
    &["config"],
    &["endpoint", "backoff", "published"],
    &["worker"],
    &["dedicated"],
    &["messaging", "internals", "sentence", ""],
];

#[test]
fn no_import_of_msgcore_rises_or_leads_to_another_room_of_its_floor() {
    let house = Crate::read("msgcore");
    let folder = |file: usize| house.sources[file].module.first().map_or("", String::as_str);
    let floor = |file: usize| FLOORS.iter().position(|folders| folders.contains(&folder(file)));
    // Services do not know each other.
    let room = |file: usize| match house.sources[file].module.as_slice() {
        [services, service, ..] if services == "services" => service,
        _ => folder(file),
    };
    let mut said = Vec::new();
    for import in &Graph::of(&house).imports {
        let (from, to) = (floor(import.from), floor(import.to));
        assert!(from.is_some() && to.is_some(), "{} or {} is on no floor", folder(import.from), folder(import.to));
        // What the crate as a whole has made of names is nobody's floor.
        let is_type_of_the_crate = folder(import.to).is_empty();
        // The floor's own file puts its rooms together.
        let is_whole_floor = room(import.from) == "services" || room(import.to) == "services";
        let is_of_the_room = room(import.from) == room(import.to) || from == to && is_whole_floor;
        if !is_of_the_room && to >= from && !is_type_of_the_crate {
            let path = |file: usize| house.sources[file].path.display().to_string();
            said.push(format!("{} takes {} from {}", path(import.from), import.name, path(import.to)));
        }
    }
    assert!(said.is_empty(), "{}", said.join("\n"));
}
