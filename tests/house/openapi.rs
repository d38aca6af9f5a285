//! The description of the API is generated and checked in; this keeps it the same as the routes and their types.
//!
//! After a change of the API: `CHECKREIN_BLESS=1 cargo test --test house openapi`.

use std::fs;

use crate::source::root;

#[test]
fn the_checked_in_description_of_the_api_is_that_of_the_code() {
    let path = root().join("docs/openapi.json");
    let wanted = format!("{:#}\n", checkrein::server::open_api());
    if std::env::var_os("CHECKREIN_BLESS").is_some() {
        fs::write(&path, &wanted).expect("it can be written");
    }
    let found = fs::read_to_string(&path).unwrap_or_default();
    assert!(
        found == wanted,
        "docs/openapi.json does not fit the code; run `CHECKREIN_BLESS=1 cargo test --test house openapi`"
    );
}

/// Every reference leads somewhere, and every name in a path is described.
#[test]
fn the_description_of_the_api_is_whole() {
    let described = checkrein::server::open_api();
    let text = described.to_string();
    for reference in text.split("\"$ref\":\"#").skip(1) {
        let pointer = reference.split('"').next().unwrap_or_default();
        assert!(described.pointer(pointer).is_some(), "{pointer}");
    }
    for (path, methods) in described["paths"].as_object().expect("paths") {
        for (method, operation) in methods.as_object().expect("methods") {
            let named = operation["parameters"].as_array().map_or(&[][..], Vec::as_slice);
            let named = named.iter().filter(|parameter| parameter["in"] == "path").count();
            assert_eq!(named, path.matches('{').count(), "{method} {path}");
            let answers = operation["responses"].as_object().expect("answers");
            let wanted = answers.keys().filter(|status| status.starts_with('2')).count();
            assert!(wanted > 0, "{method} {path} has no wanted answer");
            let gated = operation["security"].is_array();
            for status in ["401", "403", "429"] {
                assert_eq!(answers.contains_key(status), gated, "{method} {path}: {status}");
            }
        }
    }
}

/// What a client needs to go on with a stream, and what the stream says of itself.
#[test]
fn the_description_of_the_events_has_the_header_and_the_streams_own_events() {
    let described = checkrein::server::open_api();
    let events = &described["paths"]["/v1/profiles/{profile}/sessions/{session}/events"]["get"];
    let parameters = events["parameters"].as_array().expect("parameters");
    let header = parameters.iter().find(|parameter| parameter["in"] == "header").expect("one");
    assert_eq!((&header["name"], &header["required"]), (&"last-event-id".into(), &false.into()));
    let sent = &described["components"]["schemas"]["Sent"].to_string();
    for name in ["lagged", "leaving", "closing", "error"] {
        assert!(sent.contains(&format!("`{name}`")), "{name}: {sent}");
    }
    assert!(sent.contains("EventView") && sent.contains("Failed"), "{sent}");
}
